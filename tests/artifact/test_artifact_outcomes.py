"""Every row of the table of outcomes in `docs/verify.md`, through the command line."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from artifact_samples import package_sample, sample_manifest, sample_metric

from vibeserve.artifact import Packaged
from vibeserve.artifact.sums import SUMS_NAME, render_sums
from vibeserve.cli.main import main
from vibeserve.core.manifest import AuditResult, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.errors import BudgetError, InfraError, MissingBaselineError, RefusedError, VibeServeError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "verify.md"
HERE = sample_manifest().hardware
ELSEWHERE = HERE | {"cpu_model": "EPYC"}


@dataclass
class World:
    """An artifact, and what this machine says and finds when it is asked."""

    packaged: Packaged
    tmp_path: Path
    monkeypatch: pytest.MonkeyPatch
    peer: float = 70.0

    @property
    def path(self) -> str:
        return str(self.packaged.path)

    def is_at(self, hardware: dict[str, Any]) -> None:
        self.monkeypatch.setattr("vibeserve.hardware.identity", lambda facts: hardware)

    def finds(self, **changes: Any) -> None:
        """A re-verification that runs, and what it answers."""
        self.answers(lambda level: replace(self.result(level), **changes))

    def fails(self, error: BaseException) -> None:
        def raising(level: str) -> VerifyResult:
            raise error

        self.answers(raising)

    def answers(self, answer: Callable[[str], VerifyResult]) -> None:
        self.monkeypatch.setattr(
            "vibeserve.reverification.reverify", lambda runtime, *, request, **_: answer(request.level)
        )

    def result(self, level: str) -> VerifyResult:
        metrics = (sample_metric("output_throughput", peer=self.peer),) if level in ("performance", "full") else ()
        checks = ("scan", "build", "start", "probe", "replies", "accuracy", "integrity", "own_tests")
        return VerifyResult(level=level, metrics=metrics, checks=checks, seeds={"c8/0": 12345})

    def repackage(self, **changes: Any) -> None:
        self.packaged = package_sample(self.tmp_path / "other", sample_manifest(**changes))

    def keys(self) -> tuple[Path, Path]:
        """(private key, list of allowed signers)"""
        key, signers = self.tmp_path / "key", self.tmp_path / "signers"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        signers.write_text(f'me@example.org namespaces="vibeserve" {key.with_suffix(".pub").read_text()}')
        return key, signers


@pytest.fixture
def world(packaged: Packaged, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    (tmp_path / "other").mkdir()
    made = World(packaged=packaged, tmp_path=tmp_path, monkeypatch=monkeypatch)
    made.is_at(HERE)
    made.finds()
    return made


def holds(world: World) -> list[str]:
    return ["--level", "performance"]


def elsewhere(world: World) -> list[str]:
    world.is_at(ELSEWHERE)
    return []


def absent(world: World) -> list[str]:
    world.packaged = replace(world.packaged, path=world.tmp_path / "nothing")
    return []


def other_version(world: World) -> list[str]:
    path = world.packaged.path / "manifest.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 7'))
    (world.packaged.path / SUMS_NAME).write_text(render_sums(world.packaged.path))
    return ["--level", "bytes"]


def wrong_option(world: World) -> list[str]:
    return ["--max-regression", "2"]


def changed_byte(world: World) -> list[str]:
    (world.packaged.path / "runtime/runtime/model.py").write_text("HIDDEN = 65\n")
    return []


def other_claim(world: World) -> list[str]:
    path = world.packaged.path / "manifest.json"
    path.write_text(path.read_text().replace('"level": "quick"', '"level": "full"'))
    (world.packaged.path / SUMS_NAME).write_text(render_sums(world.packaged.path))
    return ["--level", "bytes"]


def other_page(world: World) -> list[str]:
    path = world.packaged.path / "VERDICT.md"
    path.write_text(path.read_text().replace("1.71x [1.66, 1.78]", "3.71x [3.66, 3.78]"))
    (world.packaged.path / SUMS_NAME).write_text(render_sums(world.packaged.path))
    return ["--level", "bytes"]


def other_digest(world: World) -> list[str]:
    return ["--expect", "ab" * 32]


def invalid_signature(world: World) -> list[str]:
    _, signers = world.keys()
    (world.packaged.path / "SHA256SUMS.sig").write_text("nonsense\n")
    return ["--allowed-signers", str(signers)]


def unsigned(world: World) -> list[str]:
    _, signers = world.keys()
    return ["--allowed-signers", str(signers), "--require-signature"]


def uncertified(world: World) -> list[str]:
    reason = Refusal(gate="baseline", reason_class="missing_baseline", text="vllm was not measured")
    world.repackage(status="uncertified", reasons=(reason,))
    return ["--level", "bytes"]


def own_rules(world: World) -> list[str]:
    reason = Refusal(gate="spec", reason_class="own_rules", text="tolerances are milder", file="spec.yaml")
    world.fails(RefusedError("own rules", reasons=[reason]))
    return []


def gate_refuses(world: World) -> list[str]:
    world.finds(reasons=(Refusal(gate="accuracy", reason_class="top1_agreement", text="0.9 of 0.97"),))
    return ["--level", "accuracy"]


def audit_refuses(world: World) -> list[str]:
    text = "a prompt that comes again is answered 9 times as fast"
    audit = AuditResult(name="repeats", passed=False, text=text)
    world.finds(reasons=(Refusal(gate="audit", reason_class="repeat_prompt", text=text),), audits=(audit,))
    return ["--level", "full"]


def known_traffic(world: World) -> list[str]:
    world.finds(seeds={"c8/0": 7})
    return []


def regression(world: World) -> list[str]:
    world.peer = 110.0
    return ["--level", "performance"]


def inconclusive(world: World) -> list[str]:
    metric = sample_metric("output_throughput")
    wide = replace(metric.baselines[0], ratio=1.2, ci_low=0.8, ci_high=2.0)
    world.finds(metrics=(replace(metric, baselines=(wide,)),))
    return ["--level", "performance"]


def nothing_recorded(world: World) -> list[str]:
    world.finds(metrics=())
    return ["--level", "performance", "--against", "predecessor"]


def performance_elsewhere(world: World) -> list[str]:
    world.is_at(ELSEWHERE)
    world.fails(AssertionError("nothing may be started"))
    return ["--level", "performance"]


def unknown_hardware(world: World) -> list[str]:
    world.repackage(hardware={})
    world.fails(AssertionError("nothing may be started"))
    return ["--level", "full"]


def plan_does_not_run(world: World) -> list[str]:
    world.fails(InfraError("the plan of 'sample' does not run on this machine: needs 80 GiB\nnext: --level bytes"))
    return []


def missing_baseline(world: World) -> list[str]:
    world.fails(MissingBaselineError("vllm", install="vibeserve peers install vllm"))
    return ["--level", "performance", "--against", "baseline"]


def machine_failed(world: World) -> list[str]:
    world.fails(InfraError("no space left"))
    return []


def interrupted(world: World) -> list[str]:
    world.fails(KeyboardInterrupt())
    return []


SCENARIOS: dict[str, Callable[[World], list[str]]] = {
    "everything that was asked for holds": holds,
    "no level asked for, other hardware: the gates hold": elsewhere,
    "no artifact there": absent,
    "a manifest of another version": other_version,
    "an option that is not valid": wrong_option,
    "a changed, missing or added byte": changed_byte,
    "a manifest that the artifact's own documents contradict": other_claim,
    "a page that says otherwise than the manifest": other_page,
    "another digest than `--expect`": other_digest,
    "a signature that is not valid": invalid_signature,
    "a signature is required and none is valid": unsigned,
    "intact, and packaged as uncertified": uncertified,
    "rules of its own": own_rules,
    "a gate refuses": gate_refuses,
    "an audit refuses": audit_refuses,
    "traffic that was known before": known_traffic,
    "a regression": regression,
    "an interval too wide to tell": inconclusive,
    "nothing recorded to compare with": nothing_recorded,
    "performance asked for on other hardware": performance_elsewhere,
    "full asked for on unknown hardware": unknown_hardware,
    "a plan that this machine cannot run": plan_does_not_run,
    "a baseline that was asked for is not installed": missing_baseline,
    "the machine failed": machine_failed,
    "interrupted": interrupted,
}


def rows() -> list[tuple[str, int, str]]:
    """(outcome, exit code, reason) of the document's table."""
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Outcomes")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| (\d+) \|(?: (.+?))? \|$", section, re.MULTILINE)
    return [(outcome, int(code), reason.strip("` ")) for outcome, code, reason in found]


def test_every_row_has_a_scenario_and_the_other_way_round() -> None:
    assert sorted(outcome for outcome, _, _ in rows()) == sorted(SCENARIOS)


@pytest.mark.parametrize(("outcome", "code", "reason"), rows(), ids=[row[0] for row in rows()])
def test_the_outcome_has_its_exit_code_and_reason(
    world: World, capsys: pytest.CaptureFixture[str], outcome: str, code: int, reason: str
) -> None:
    options = SCENARIOS[outcome](world)
    junit, summary = world.tmp_path / "junit.xml", world.tmp_path / "summary.md"
    argv = ["verify", world.path, *options, "--json", "--junit", str(junit), "--summary", str(summary)]
    assert main(argv) == code
    if outcome == "interrupted":
        return
    answer = json.loads(capsys.readouterr().out)
    if code in (2, 5):
        assert answer["error"]["exit_code"] == code
        if outcome != "an option that is not valid":
            assert_not_judged(junit, summary, code=code)
        return
    assert answer["exit_code"] == code
    first = answer["reasons"][0] if answer["reasons"] else {}
    if reason == "the manifest's":
        assert (answer["status"], first["class"]) == ("uncertified", "missing_baseline")
    else:
        assert "/".join(filter(None, (first.get("gate"), first.get("class")))) == reason
    assert f"(exit {code})" in summary.read_text().splitlines()[0]
    failures = list(dict.fromkeys(case.get("type") for case in ElementTree.parse(junit).iter("failure")))
    assert failures[:1] == ([first["class"]] if code else [])


def assert_not_judged(junit: Path, summary: Path, *, code: int) -> None:
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("errors"), suite.get("failures")) == ("1", "1", "0")
    assert summary.read_text().startswith(f"## vibeserve verify: not judged (exit {code})")


def test_a_level_that_measures_is_never_replaced_by_a_milder_one(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.is_at(ELSEWHERE)
    world.fails(AssertionError("nothing may be started"))
    for level in ("performance", "full"):
        assert main(["verify", world.path, "--level", level]) == 5
        told = capsys.readouterr().err
        assert f'level {level} cannot be judged on this machine: it is not the certified one (cpu_model "Xeon"' in told
        assert "nothing was started\nnext: verify it on such a machine, or --level accuracy" in told


@pytest.mark.parametrize("how", ["nobody", "digest", "signature"])
def test_who_vouches_for_the_artifact_vouches_for_its_rules(
    world: World, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    asked: list[bool] = []

    def reverify(runtime: Path, *, request: Any, **_: Any) -> VerifyResult:
        asked.append(request.is_vouched)
        return world.result(request.level)

    world.monkeypatch.setattr("vibeserve.reverification.reverify", reverify)
    key, signers = world.keys()
    assert main(["sign", world.path, "--key", str(key)]) == 0
    options = {
        "nobody": [],
        "digest": ["--expect", world.packaged.sums_digest],
        "signature": ["--allowed-signers", str(signers)],
    }[how]
    assert main(["verify", world.path, "--level", "accuracy", *options]) == 0
    assert asked == [how != "nobody"]
    capsys.readouterr()


def test_every_error_that_verify_can_meet_has_a_code_of_the_table() -> None:
    codes = {code for _, code, _ in rows()}
    classes = [each for each in _subclasses(VibeServeError) if not issubclass(each, BudgetError)]
    assert {each.exit_code for each in classes} <= codes


def _subclasses(cls: type[VibeServeError]) -> list[type[VibeServeError]]:
    return [cls for direct in cls.__subclasses__() for cls in (direct, *_subclasses(direct))]
