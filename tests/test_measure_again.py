"""A packaged runtime measured again: beside whom at which level, from a fresh copy, and what is recorded of it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from artifact_samples import sample_manifest, sample_metric
from load_samples import word_model_dir

from vibeserve.baselines import Availability
from vibeserve.certification import Certification, Extent
from vibeserve.config import compose_spec
from vibeserve.core.manifest import Golden, Manifest
from vibeserve.core.nouns import RatioInterval, Verdict
from vibeserve.errors import InfraError, MissingBaselineError, RefusedError
from vibeserve.hardware import probe
from vibeserve.modalities import bundle_ref
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.progress import QuietProgress
from vibeserve.reverification import Against, Opponents, Predecessor, Request, measure_again, opponents_of, reverify
from vibeserve.reverification.run import MIN_PAIRS
from vibeserve.schedules import AuditScope
from vibeserve.seeds import get_seed, scaffold_settings
from vibeserve.skills import compose_scaffold, write_scaffold
from vibeserve.spec import Baseline, ClockKind, Spec, Tier

INTERVAL = RatioInterval(ratio=2.4, ci_low=2.2, ci_high=2.6, num_pairs=8)


@pytest.fixture
def spec() -> Spec:
    return compose_spec(["+target=tiny_cpu", "evaluation.clock=real"])


@dataclass
class Bench:
    """What opponents are resolved on: the real plan and scaffold of `spec`; nothing is started."""

    spec: Spec
    run_dir: Path
    tier: Tier = Tier.A
    built: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        model_dir = word_model_dir()
        self.plan = compile_unmeasured(self.spec, facts=probe())
        self.model = SimpleNamespace(path=model_dir)
        self.scaffold = write_scaffold(compose_scaffold(self.spec.model), self.run_dir / "scaffold")
        self.bundle = SimpleNamespace(ref=bundle_ref(self.spec, model_dir=model_dir))
        self.host = SimpleNamespace(probe=probe)

    def build(self, workspace: Path) -> None:
        assert not (workspace / "build").exists()
        (workspace / "build").mkdir()
        (workspace / "build/kernels.so").write_bytes(b"compiled here")
        self.built.append(workspace)


@pytest.fixture
def bench(spec: Spec, tmp_path: Path) -> Any:
    return Bench(spec=spec, run_dir=tmp_path / "run")


@pytest.fixture
def workspace(bench: Any, tmp_path: Path) -> Path:
    """A runtime as an artifact ships it."""
    folder = tmp_path / "runtime"
    settings = scaffold_settings(bench.spec, scaffold=bench.scaffold)
    get_seed(bench.spec.seed, scaffold=bench.scaffold, settings=settings, pins={}).materialise(folder)
    return folder


@dataclass
class Certifier:
    """Answers without starting anything, and remembers what it was asked."""

    bench: Any
    asked: dict[str, Any] = field(default_factory=dict)

    def certify(self, workspace: Path, **asked: Any) -> Certification:
        self.asked = asked | {"files": {path.name for path in workspace.iterdir()}}
        self.bench.build(workspace)
        golden = Golden(seeds={"c4/0": 99}, replies=())
        return Certification(
            verdict=Verdict(checks=("scan",)), metrics=(sample_metric("output_throughput"),), golden=golden
        )


def manifest(*names: str, baseline_class: str = "naive", version: str = "0.1.0") -> Manifest:
    """With a claim against `names`."""
    metric = sample_metric("output_throughput")
    row = replace(metric.baselines[0], baseline_class=baseline_class, version=version, weight_bits=32.0)
    rows = tuple(replace(row, name=name) for name in names)
    return sample_manifest(target="tiny_cpu", metrics=(replace(metric, baselines=rows),))


def no_predecessor(folder: Path) -> None:
    raise AssertionError("the predecessor was not asked for")


def opponents(
    bench: Any, claimed: Manifest, *, level: str = "performance", against: Against = Against.AUTO, find: Any = None
) -> Opponents:
    return opponents_of(
        bench, claimed, level=level, against=against, find_predecessor=find or no_predecessor,
        progress=QuietProgress(),
    )  # fmt: skip


def test_level_accuracy_starts_nobody_else(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.reverification.opponents.check_available", no_predecessor)
    assert opponents(bench, manifest("scaffold"), level="accuracy") == Opponents()


def test_an_installed_baseline_of_the_claim_is_measured_and_named(bench: Any) -> None:
    found = opponents(bench, manifest("scaffold"))
    assert [(rival.name, rival.is_required) for rival in found.rivals] == [("scaffold", True)]
    assert found.texts == ("scaffold 0.1.0 (recorded baseline)",)
    assert found.recorded == ()


def test_another_version_than_the_certified_one_is_said(bench: Any) -> None:
    found = opponents(bench, manifest("scaffold", version="0.0.9"))
    assert found.texts == ("scaffold 0.1.0 (recorded baseline, certified against 0.0.9)",)


def test_where_a_competent_baseline_bears_the_claim_the_naive_one_is_left_out(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.plan.spec.baseline["vllm"] = Baseline()
    both = manifest("vllm", baseline_class="competent").metrics[0]
    naive = manifest("scaffold").metrics[0].baselines
    claimed = sample_manifest(metrics=(replace(both, baselines=(*both.baselines, *naive)),))
    absent = Availability(name="vllm", version=None, reason="not installed")
    monkeypatch.setattr("vibeserve.reverification.opponents.check_available", lambda name, declared: absent)
    with pytest.raises(InfraError, match="there is no baseline to measure against: vllm: not installed"):
        opponents(bench, claimed, against=Against.BASELINE)


def test_a_baseline_of_the_claim_that_is_not_here_is_said_to_be_left_out(
    bench: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path))
    bench.plan.spec.baseline["vllm"] = Baseline()
    found = opponents(bench, manifest("scaffold", "vllm", "unheard_of"))
    assert [rival.name for rival in found.rivals] == ["scaffold"]
    assert [text.split(";")[0] for text in found.not_run] == [
        "vllm: not installed", "unheard_of: the spec does not declare it"
    ]  # fmt: skip


def predecessor(workspace: Path, recorded: RatioInterval | None = INTERVAL) -> Any:
    def find(folder: Path) -> Predecessor:
        return Predecessor(workspace=workspace, commit="c" * 40, round_number=1, recorded=recorded)

    return find


def without_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, declared: Baseline) -> Availability:
        raise MissingBaselineError(name, install="pip install it")

    monkeypatch.setattr("vibeserve.reverification.opponents.check_available", missing)


def test_without_any_baseline_it_is_the_predecessor_and_says_why(
    bench: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_peers(monkeypatch)
    found = opponents(bench, manifest("scaffold"), find=predecessor(workspace))
    (rival,) = found.rivals
    assert (rival.name, rival.version, rival.is_ours, rival.is_required) == ("predecessor", "c" * 12, True, True)
    assert bench.built == [workspace]
    why = "required baseline 'scaffold' is not installed"
    assert found.texts == (f"predecessor {'c' * 12} (round 1, packaged; {why})",)
    (recorded,) = found.recorded
    assert [(row.name, row.ci_low) for row in recorded.claims()] == [("predecessor", 2.2)]


def test_the_predecessor_may_be_asked_for(bench: Any, workspace: Path) -> None:
    found = opponents(bench, manifest("scaffold"), against=Against.PREDECESSOR, find=predecessor(workspace))
    assert found.texts == (f"predecessor {'c' * 12} (round 1, packaged; as was asked)",)


def test_a_baseline_that_was_asked_for_is_never_replaced(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without_peers(monkeypatch)
    with pytest.raises(MissingBaselineError, match="required baseline 'scaffold' is not installed"):
        opponents(bench, manifest("scaffold"), against=Against.BASELINE)


def test_an_artifact_without_either_cannot_be_judged(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    without_peers(monkeypatch)
    with pytest.raises(InfraError, match=r"the artifact has no predecessor: no round .* was accepted\nnext: install"):
        opponents(bench, manifest("scaffold"), find=lambda folder: None)


@pytest.mark.parametrize("recorded", [None, INTERVAL])
def test_a_ratio_that_a_fake_clock_made_is_no_claim(
    tmp_path: Path, workspace: Path, recorded: RatioInterval | None
) -> None:
    fake = compose_spec(["+target=tiny_cpu"])
    assert fake.evaluation.clock is ClockKind.fake
    bench: Any = Bench(spec=fake, run_dir=tmp_path / "other")
    find = predecessor(workspace, recorded)
    found = opponents(bench, manifest("scaffold"), against=Against.PREDECESSOR, find=find)
    assert (len(found.rivals), found.recorded) == (1, ())


def test_a_predecessor_is_scanned_like_any_candidate(bench: Any, workspace: Path) -> None:
    (workspace / "runtime/model.py").write_text("import vllm\n")
    with pytest.raises(RefusedError, match="the packaged predecessor is refused") as caught:
        opponents(bench, manifest("scaffold"), against=Against.PREDECESSOR, find=predecessor(workspace))
    assert caught.value.reasons and bench.built == []


# -- the measurement


def measured(bench: Any, runtime: Path, *, level: str) -> tuple[Any, dict[str, Any]]:
    certifier: Any = Certifier(bench)
    result = measure_again(
        bench, certifier, runtime, manifest=manifest("scaffold"), request=Request(level=level), progress=QuietProgress()
    )
    return result, certifier.asked


def test_it_runs_a_fresh_copy_that_is_built_here(bench: Any, workspace: Path) -> None:
    (workspace / "build").mkdir()
    (workspace / "build/kernels.so").write_bytes(b"compiled elsewhere")
    result, asked = measured(bench, workspace, level="accuracy")
    assert "build" not in asked["files"] and "runtime" in asked["files"]
    (copy,) = bench.built
    assert copy != workspace and copy.is_relative_to(bench.run_dir)
    assert (copy / "build/kernels.so").read_bytes() == b"compiled here"
    assert (workspace / "build/kernels.so").read_bytes() == b"compiled elsewhere"
    assert result.built == ("build/kernels.so",)


@pytest.mark.parametrize(
    ("level", "num_rivals", "num_pairs", "audits"),
    [("accuracy", 0, 2, AuditScope.none), ("performance", 1, MIN_PAIRS, AuditScope.none)],
)
def test_the_shorter_levels_take_one_start_at_the_headline_load(
    bench: Any, workspace: Path, level: str, num_rivals: int, num_pairs: int, audits: AuditScope
) -> None:
    _, asked = measured(bench, workspace, level=level)
    extent: Extent = asked["extent"]
    assert (len(asked["rivals"]), extent.num_pairs, extent.audits) == (num_rivals, num_pairs, audits)
    assert (extent.loads, extent.num_starts, extent.is_fresh_per_window) == (("c4",), 1, False)


def test_what_is_recorded_of_it(bench: Any, workspace: Path) -> None:
    result, _ = measured(bench, workspace, level="performance")
    assert result.seeds == {"c4/0": 99} and result.checks == ("scan",)
    assert result.against == ("scaffold 0.1.0 (recorded baseline)",)
    seen = result.environment
    assert (seen.cpu_model, seen.engine_cpus, seen.sandbox_tier) == (probe().cpu_model, bench.plan.engine_cpus, "A")
    assert result.not_run[0] == "other starts and loads of the certification's level"


# -- a machine that cannot


def reverified(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    named = sample_manifest(target=spec.target.name, digests={})
    return reverify(tmp_path, spec=spec, manifest=named, request=Request(level="accuracy"))


def test_cores_that_are_not_here_are_the_machines_lack(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.hardware.engine_cpus = "999"
    with pytest.raises(InfraError) as caught:
        reverified(spec, tmp_path, monkeypatch)
    assert caught.value.exit_code == 5
    told = str(caught.value)
    assert told.startswith(
        "the plan of 'tiny_cpu' does not run on this machine: hardware.engine_cpus: this process may"
    )
    assert told.endswith("next: verify it where it was certified, or --level bytes")


def test_hardware_that_is_not_here_is_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if probe().gpus:
        pytest.skip("this machine has a GPU")
    with pytest.raises(InfraError, match="cannot run from here; nothing was started"):
        reverified(compose_spec(["+target=olmo_l4"]), tmp_path, monkeypatch)


def test_nothing_is_left_in_the_cache(spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec.hardware.engine_cpus = "999"
    with pytest.raises(InfraError):
        reverified(spec, tmp_path, monkeypatch)
    assert list((tmp_path / "cache/verify").iterdir()) == []
