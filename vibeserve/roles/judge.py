"""The Accuracy Judge: screens a candidate before it is measured, and passes or refuses the evidence afterwards.

Everything here fails closed: a check that did not run, or a figure that is missing, refuses.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.accuracy import Scores, judge_records, not_probed, probe_refusals, probe_server, suite_of
from vibeserve.audit import Snapshot, compare, scan_workspace, snapshot
from vibeserve.contract import Record
from vibeserve.core.nouns import Refusal, Verdict
from vibeserve.core.paths import cache_dir, data_dir
from vibeserve.errors import InfraError, RefusedError, ServerError
from vibeserve.hosts import LocalHost
from vibeserve.modalities import contract_files
from vibeserve.roles.ranks import absent_ranks
from vibeserve.roles.workbench import Workbench
from vibeserve.sandbox import Wall
from vibeserve.seeds import get_seed
from vibeserve.service import Server, candidate_launch
from vibeserve.service.launch import thread_environment
from vibeserve.spec import OWN_SEEDS
from vibeserve.weights import ModelDir, materialise

SCREEN_CHECKS = ("scan", "build", "start", "probe")
VERDICT_CHECKS = ("replies", "accuracy", "integrity", "cleanliness")
OWN_TESTS_TIMEOUT_S = 300.0
TEST_SPECS = (
    ("+target=tiny_cpu",),
    ("+target=tiny_cpu", "model=tiny_olmo_hybrid"),
    ("+target=tiny_cpu", "model=tiny_qwen3_next"),
    ("+target=tiny_speech_cpu",),
    ("+target=tiny_image_cpu",),
    ("+target=tiny_janus_cpu",),
)
"""whose models, a few layers of random weights each, the runtimes' own tests run on, by modality and architecture"""
PROBE_TIMEOUT_S, THOROUGH_TIMEOUT_S = 240.0, 600.0
BYTE_CODE = shutil.ignore_patterns("__pycache__")


@dataclass(frozen=True, kw_only=True)
class Screening:
    """What screening found. `server` runs exactly when nothing was refused; the caller stops it."""

    refusals: tuple[Refusal, ...]
    checks: tuple[str, ...]
    server: Server | None
    before: Snapshot
    """digests of workspace, model and framework before anything ran"""
    not_run: tuple[str, ...] = ()
    """what the probes could not look at of this model"""


class Judge:
    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._not_probed: dict[str, tuple[str, ...]] = {}
        """by name of the server"""

    def screen_statically(self, workspace: Path) -> Screening | None:
        """The scan and the build alone; None where neither refuses. May run beside others, and starts no server."""
        with self._bench.spent.on("scan"):
            refusals = scan_workspace(workspace, allow_engines=self._bench.plan.spec.allow_engines)
        before = snapshot([workspace])
        if refusals:
            return Screening(refusals=tuple(refusals), checks=("scan",), server=None, before=before)
        return self._build(workspace, before=before)

    def _build(self, workspace: Path, *, before: Snapshot) -> Screening | None:
        """None where it builds."""
        try:
            self._bench.build(workspace)
        except ServerError as error:
            return _failed("build", error, checks=("scan",), before=before)
        except RefusedError as error:
            reasons = tuple(reason for reason in error.reasons if isinstance(reason, Refusal))
            untyped = Refusal(gate="build", reason_class="refused", text=str(error))
            return Screening(refusals=reasons or (untyped,), checks=("scan",), server=None, before=before)
        return None

    def screen(self, workspace: Path, *, name: str, seed: int, is_thorough: bool = False) -> Screening:
        """Digests, static scan, build, start, probes: cheap, may refuse. ServerError never escapes: it is a refusal.

        `is_thorough`: the probes of a certification, more and longer prompts.
        """
        with self._bench.spent.on("scan"):
            before = self.snapshot(workspace)
            refusals = scan_workspace(workspace, allow_engines=self._bench.plan.spec.allow_engines)
        if refusals:
            return Screening(refusals=tuple(refusals), checks=("scan",), server=None, before=before)
        unbuilt = self._build(workspace, before=before)
        if unbuilt is not None:
            return unbuilt
        try:
            server = self._bench.serve(workspace, name=name)
        except ServerError as error:
            return _failed("start", error, checks=("scan", "build"), before=before)
        refusals = self._probe_or_stop(server, seed=seed, is_thorough=is_thorough)
        if refusals:
            return Screening(refusals=tuple(refusals), checks=SCREEN_CHECKS, server=None, before=before)
        not_run = self._not_probed.get(name, ())
        return Screening(refusals=(), checks=SCREEN_CHECKS, server=server, before=before, not_run=not_run)

    def _probe_or_stop(self, server: Server, *, seed: int, is_thorough: bool) -> list[Refusal]:
        """The probes' refusals; the server goes on only where there are none."""
        refusals: list[Refusal] | None = None
        num_ranks = self._bench.plan.spec.parallelism.tensor
        try:
            before = server.cpu_by_process() if num_ranks > 1 else {}
            refusals = self.probe(server, seed=seed, is_thorough=is_thorough)
            refusals += absent_ranks(server, before=before, wanted=num_ranks)
        except InfraError as error:
            # the probes cannot enter the network of a server that has ended: its doing, not the machine's
            if server.poll() is None:
                raise
            said = f"{server.log_tail()}\n{error}".strip()
            refusals = [Refusal(gate="probe", reason_class=server.outcome, text=said)]
        finally:
            if refusals != []:
                server.stop(drain_s=0)
        return refusals

    def probe(self, server: Server, *, seed: int, is_thorough: bool = False) -> list[Refusal]:
        """The bundle's probes against a running server."""
        bundle = self._bench.bundle
        with self._bench.spent.on("probe"):
            report = probe_server(
                server.base_url, bundle=bundle, seed=seed,
                run_dir=self._bench.run_dir / "probes" / server.name,
                join=self._bench.host.join_argv(server.process, [], cpus=self._bench.plan.client_cpus),
                is_thorough=is_thorough, timeout_s=THOROUGH_TIMEOUT_S if is_thorough else PROBE_TIMEOUT_S,
            )  # fmt: skip
        self._not_probed[server.name] = not_probed(report)
        return probe_refusals(report, suite=suite_of(bundle))

    def own_tests(self, workspace: Path) -> list[Refusal]:
        """The runtime's own tests, behind the wall: it must pass what it ships. They run on two layers of random
        weights where there are some of the model's architecture, else on the model itself.

        The scaffold's tests are laid over the workspace's, so that nobody passes by shipping none; where the search
        began from an engine or a folder of somebody's own, those of that.
        """
        model = self._test_model()
        tested = self._bench.run_dir / "own_tests" / workspace.name
        shutil.rmtree(tested, ignore_errors=True)
        shutil.copytree(workspace, tested)
        for folder in self._required_tests():
            shutil.copytree(folder, tested / "tests", dirs_exist_ok=True, ignore=BYTE_CODE)
        launch = candidate_launch(tested, model_dir=model.path, allow_engines=self._bench.plan.spec.allow_engines)
        wall = Wall(
            tier=self._bench.tier, workdir=tested, read_only=(tested, model.path), cpus=self._bench.plan.engine_cpus,
            hidden_modules=launch.hidden_modules, resources=self._bench.resources,
            env={**thread_environment(self._bench.plan.threads), "VIBESERVE_MODEL_DIR": str(model.path)},
        )  # fmt: skip
        with self._bench.spent.on("own_tests"):
            done = self._bench.host.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], wall=wall,
                log=self._bench.run_dir / f"{workspace.name}.tests.log", timeout_s=OWN_TESTS_TIMEOUT_S,
            )  # fmt: skip
        if done.returncode == 0:
            return []
        exceeded = done.exceeded
        reason_class = exceeded.value if exceeded is not None else "timed_out" if done.timed_out else "failed"
        return [Refusal(gate="own_tests", reason_class=reason_class, text=done.log_tail)]

    def _required_tests(self) -> list[Path]:
        """Folders whose tests every candidate has to pass; none where the seed ships none."""
        seed = self._bench.plan.spec.seed
        if seed.kind not in OWN_SEEDS:
            return [self._bench.scaffold / "tests"]
        folder = self._bench.run_dir / "seed_tests"
        shutil.rmtree(folder, ignore_errors=True)
        get_seed(seed, scaffold=self._bench.scaffold, settings={}).materialise(folder)
        return [folder / "tests"] if (folder / "tests").is_dir() else []

    def _test_model(self) -> ModelDir:
        from vibeserve.config import compose_spec

        declared = self._bench.plan.spec.model
        for overrides in TEST_SPECS:
            tiny = compose_spec(list(overrides), cwd=data_dir("targets").parent).model
            if (declared.modality, declared.architecture) == (tiny.modality, tiny.architecture):
                return materialise(tiny, cache=cache_dir())
        return self._bench.model

    def verdict(
        self, records: Sequence[Record], *, workspace: Path, before: Snapshot, seed: int, max_replies: int, name: str,
        added: Sequence[Refusal] = (),
    ) -> tuple[Verdict, Scores]:  # fmt: skip
        """Accuracy on the very records that were timed, that nothing changed meanwhile and nothing was left behind.

        `max_replies` 0 re-scores all. `added` are an agent's refusals. Call it with the servers stopped: re-scoring
        takes every core.
        """
        with self._bench.spent.on("rescore"):
            judged = judge_records(
                records, bundle=self._bench.bundle.ref, num_threads=LocalHost().probe().num_cpus,
                max_replies=max_replies, seed=seed, run_dir=self._bench.run_dir / "rescore" / name,
            )  # fmt: skip
        changed = compare(before, self.snapshot(workspace))
        every = (*judged.refusals, *changed, *self._bench.untidiness(name), *added)
        verdict = Verdict(refusals=every, accuracy=judged.figures, checks=(*SCREEN_CHECKS, *VERDICT_CHECKS))
        return verdict, judged.scores

    def snapshot(self, workspace: Path) -> Snapshot:
        """Digests of what must not change while it is measured."""
        framework = Path(__file__).resolve().parents[1]
        own = contract_files(self._bench.plan.spec)
        return snapshot([workspace, self._bench.model.path, framework, *own])


def _failed(gate: str, error: ServerError, *, checks: tuple[str, ...], before: Snapshot) -> Screening:
    refusal = Refusal(gate=gate, reason_class=error.outcome, text=str(error))
    return Screening(refusals=(refusal,), checks=checks, server=None, before=before)
