"""What may be declared and does not run yet, and what a load changes in its workload."""

from __future__ import annotations

import pytest

from vibeserve.config import compose_spec
from vibeserve.spec import Load, Workload
from vibeserve.workloads import RUNNABLE, WORKLOAD_KINDS, at_load, longest_sequence_tokens, not_yet


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["+target=tiny_cpu"], []),
        (["+target=json_cpu"], []),
        (["+target=moonshine_cpu"], []),
        (["+target=showo2_cpu"], []),
        (["+target=janus_cpu"], []),
        (
            ["+target=janus_cpu", "model=janus_pro_1b"],
            [
                "model.revision: 'deepseek-community/Janus-Pro-1B' needs model.revision before it can be fetched: the "
                "40 hex digits of a commit of its hub repository",
                "model.source.kind: 'deepseek-community/Janus-Pro-1B' cannot be fetched from the hub yet: no published "
                "checkpoint has been read; what runs: seeded, or a folder in the layout of docs/image.md",
            ],
        ),
        (
            ["+target=showo2_h100"],
            [
                "model.source.kind: 'showlab/show-o2-1.5B-HQ' cannot be fetched from the hub yet: body, flow head, VAE "
                "and tokenizer lie in several repositories; what runs: seeded, or a folder in the layout of "
                "docs/image.md"
            ],
        ),
        (
            ["+target=code_edit_cpu"],
            [],
        ),
        (
            [
                "+target=tiny_cpu",
                "workload=code_edit",
                "model=smollm2_135m",
                "goals=[{metric: e2el_p50, min_ratio: 1, against: naive}]",
            ],
            [],
        ),
        (["+target=olmo_cpu"], []),
        (
            ["+target=json_m3", "workload=chat", "goals=[{metric: e2el_p50, min_ratio: 1, against: mlx_lm}]"],
            [
                "model.revision: 'mlx-community/Meta-Llama-3.1-8B-Instruct-8bit' needs model.revision before it can be "
                "fetched: the 40 hex digits of a commit of its hub repository"
            ],
        ),
    ],
)
def test_what_does_not_run_yet_says_what_does(overrides: list[str], told: list[str]) -> None:
    assert not_yet(compose_spec(overrides)) == told


def test_every_kind_that_runs_has_a_stream() -> None:
    of_other_modalities = {"streaming_asr", "text_to_image"}
    assert {kind for kind, why_not in RUNNABLE.items() if not why_not} - of_other_modalities <= set(WORKLOAD_KINDS)


def test_a_load_changes_what_it_declares_and_nothing_else() -> None:
    workload = Workload(
        kind="shared_prefix", shared_prefix_tokens=64, num_prefixes=2,
        loads={
            "c8": Load(concurrency=8),
            "o128": Load(concurrency=8, output_tokens=200),
            "cold": Load(num_prefixes=50),
        },
    )  # fmt: skip
    assert at_load(workload, "c8") == workload
    fixed = at_load(workload, "o128")
    assert (fixed.output_tokens_min, fixed.output_tokens_max, fixed.num_prefixes) == (200, 200, 2)
    assert at_load(workload, "cold").num_prefixes == 50
    assert longest_sequence_tokens(workload) == 64 + 512 + 200
    recorded = Workload(kind="streaming_asr", audio_s_min=1, audio_s_max=5, loads={"20s": Load(audio_s=20)})
    assert at_load(recorded, "20s").audio_s_min == at_load(recorded, "20s").audio_s_max == 20
    edits = Workload(kind="code_edit", prediction="edits", loads={"useless": Load(prediction="useless")})
    assert at_load(edits, "useless").prediction == "useless"
