"""SpecErrors that no command line reaches, because something before them refuses first: their exact texts.

They guard the public functions that raise them. `tests/config/test_config_errors.py` holds the rest.
"""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from numbers_target import WORKLOAD, numbers_bundle

from vibeserve.accuracy.scoring import expected_of
from vibeserve.accuracy.trial import try_out
from vibeserve.artifact.open import read_spec
from vibeserve.baselines import PEERS, get_peer
from vibeserve.config import compose_spec
from vibeserve.contract import Pool
from vibeserve.errors import SpecError
from vibeserve.modalities.folder import load_file
from vibeserve.plan.digests import model_digest
from vibeserve.skills.loader import Skill, load_scaffold, read_scaffold_file
from vibeserve.skills.resolve import card_of
from vibeserve.skills.scaffolds import built_in_layers
from vibeserve.spec import Model, SourceKind, Workload
from vibeserve.workloads import code_edit
from vibeserve.workloads.exact_text import exact_prompt
from vibeserve.workloads.shared_prefix import draw_prefix
from vibeserve.workloads.trace_file import read_trace


def told(call: Any) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    assert caught.value.exit_code == 2
    return str(caught.value)


class InPairs:
    """A tokenizer whose tokens come in pairs: an odd length cannot be met."""

    def encode(self, text: str) -> Any:
        return Encoding(ids=list(range(len(text) // 2 * 2)), offsets=[(0, n + 1) for n in range(len(text) + 8)])


class NeverAtABorder:
    """A token a character, but what follows a separator changes the first token."""

    def encode(self, text: str) -> Any:
        ids = [ord(letter) for letter in text]
        return Encoding(ids=ids if text == "prefix" else [0, *ids[1:]], offsets=[])


@dataclasses.dataclass(frozen=True)
class Encoding:
    ids: list[int]
    offsets: list[tuple[int, int]]


def test_a_folder_without_a_scaffold(tmp_path: Path) -> None:
    assert told(lambda: load_scaffold(tmp_path)) == f"{tmp_path}: no scaffold.yaml, so not a scaffold"
    (tmp_path / "scaffold.yaml").write_text("- parameters\n")
    text = f"scaffold '{tmp_path}' is not valid\n  {tmp_path / 'scaffold.yaml'}: must be a mapping"
    assert told(lambda: read_scaffold_file(tmp_path)) == text


def test_an_architecture_that_no_scaffold_wraps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = tmp_path / "runtime" / "text"
    base.mkdir(parents=True)
    (base / "scaffold.yaml").write_text("architectures: [llama, qwen3]\n")
    monkeypatch.setattr("vibeserve.skills.scaffolds.data_dir", lambda name: tmp_path)
    model = Model(id="x", architecture="gpt9")
    text = "model.architecture: the scaffold has no 'gpt9'\n  valid: llama, qwen3"
    assert told(lambda: built_in_layers(model)) == text


def test_a_skill_without_code(tmp_path: Path) -> None:
    skill = Skill(name="notes", description="", path=tmp_path, digest="", card=None)
    assert told(lambda: card_of(skill)) == "skill 'notes' has no component: it is knowledge only"


def test_a_tokenizer_that_meets_no_length() -> None:
    tokenizer: Any = InPairs()
    drawn = told(lambda: exact_prompt(7, generator=random.Random(0), pool=Pool.visible, tokenizer=tokenizer))
    first, hint = drawn.splitlines()
    assert first.startswith("no text of exactly 7 tokens found in ")
    assert hint == "next: the model's tokenizer must round-trip plain ASCII text"


def test_a_prefix_that_ends_at_no_border(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.workloads.shared_prefix.exact_prompt", lambda *_, **__: "prefix")
    workload = Workload(kind="shared_prefix", shared_prefix_tokens=64)
    tokenizer: Any = NeverAtABorder()
    drawn = told(lambda: draw_prefix(workload, index=0, tokenizer=tokenizer, pool=Pool.visible, seed=1))
    first, hint = drawn.splitlines()
    assert first.startswith("no prefix of 64 tokens ends at a token's border after ")
    assert hint == "next: the model's tokenizer must split text at line breaks"


def test_a_python_without_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_edit, "source_files", lambda pool: ())
    workload = Workload(kind="code_edit", prompt_tokens_min=400, prompt_tokens_max=500)
    tokenizer: Any = InPairs()
    first, hint = told(
        lambda: code_edit.code_edit_stream(workload, tokenizer=tokenizer, pool=Pool.visible, seed=1, logprobs_share=0)
    ).splitlines()
    assert first.startswith("the code_edit workload finds no source files of the standard library in ")
    assert hint == "next: use a Python installation that ships its sources"


def test_a_trace_that_is_gone(tmp_path: Path) -> None:
    workload = Workload(kind="trace", trace=str(tmp_path / "gone.jsonl"))
    assert told(lambda: read_trace(workload)).splitlines() == [
        "workload.trace: gone.jsonl cannot be replayed",
        f"  workload.trace: no file {tmp_path / 'gone.jsonl'}",
        "next: docs/workloads.md describes the lines of a trace",
    ]


def test_a_peer_that_can_only_be_declared() -> None:
    text = f"baseline: 'sglang' has no launcher in this version\n  those with one: {', '.join(sorted(PEERS))}"
    assert told(lambda: get_peer("sglang")) == text


def test_weights_that_went_away_after_the_check(tmp_path: Path) -> None:
    spec = compose_spec(["+target=tiny_cpu"])
    source = dataclasses.replace(spec.model.source, kind=SourceKind.folder, path="gone")
    target = dataclasses.replace(spec.target, dir=str(tmp_path))
    spec = dataclasses.replace(spec, model=dataclasses.replace(spec.model, source=source), target=target)
    assert told(lambda: model_digest(spec)).splitlines() == [
        f"model.source.path: no folder {tmp_path / 'gone'}",
        "  the path is relative to the target's folder",
        "next: correct model.source.path",
    ]


def test_an_artifact_whose_spec_is_none(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("- 1\n")
    path = tmp_path / "spec.yaml"
    assert told(lambda: read_spec(tmp_path)) == f"{path} cannot be read as a composed spec: it holds no mapping"


def test_a_file_of_a_target_that_is_gone(tmp_path: Path) -> None:
    text = f"{tmp_path / 'check.py'}: no such file\nnext: docs/contract.md"
    assert told(lambda: load_file(tmp_path / "check.py")) == text


def test_a_reference_that_cannot_run(tmp_path: Path) -> None:
    bundle = numbers_bundle(tmp_path, reference="def load(path, device, dtype):\n    return object()\n")
    assert told(lambda: bundle.load_reference(device="cpu", dtype="float32")) == (
        f"{tmp_path / 'reference.py'}: what load() returns has no run(request)\nnext: docs/contract.md"
    )


def test_a_reference_that_answers_some_of_what_it_is_asked(tmp_path: Path) -> None:
    class Short:
        def score_many(self, pairs: object) -> list[float]:
            return [1.0]

    reference: Any = Short()
    pairs: Any = [(None, None), (None, None)]
    bundle = numbers_bundle(tmp_path)
    text = "score_many answered 1 of 2 pairs\nnext: docs/contract.md"
    assert told(lambda: expected_of(bundle, reference, pairs)) == text


def test_a_workload_that_ends_at_once(tmp_path: Path) -> None:
    ending = "    yield Request(request_id='one', payload=[1])\n"
    begin, end = WORKLOAD.index("    generator = "), WORKLOAD.index("async def send")
    bundle = numbers_bundle(tmp_path, workload=f"{WORKLOAD[:begin]}{ending}\n\n{WORKLOAD[end:]}")
    tried = told(lambda: try_out(bundle, seed=1, num_requests=4, only=(), device="cpu", dtype="float32"))
    assert tried == f"file:{tmp_path / 'workload.py'}: requests() ends after 1\nnext: docs/contract.md"
