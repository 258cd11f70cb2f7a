"""Run the graph: one invoke task per step, in topological order, each redone only when what it depends on changed."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.build.graph import Step, StepContext, StepOutcome, StepResult, StepState, order_steps
from vibeserve.build.stamps import Stamp, make_stamp, read_stamp, what_changed, write_stamp
from vibeserve.core.documents import canonical_json, digest_of
from vibeserve.core.signals import stop_if_asked
from vibeserve.core.storage import refuse_full_disk
from vibeserve.errors import InfraError, VibeServeError
from vibeserve.progress import Progress

if TYPE_CHECKING:
    from invoke.context import Context
    from invoke.tasks import Task


def execute(
    steps: Sequence[Step], *, state_dir: Path, progress: Progress, until: Sequence[str] = ()
) -> dict[str, StepOutcome]:
    """Bring every step (or `until` and what it needs) up to date; returns the outcomes by name.

    Stamps lie in `state_dir/steps/<name>/`. When a step fails with a `VibeServeError` its dependants are skipped, what
    does not depend on it still runs, and the first error is raised at the end; StorageError at once where the disk is
    full. Raises `InfraError` when another process is building in the same `state_dir`.
    """
    order = order_steps(steps, until=until)
    with _lock(state_dir):
        return GraphRun(state_dir, progress).run(order)


class GraphRun:
    """One pass over the graph, serial. Holds the outcomes so far and the first error."""

    def __init__(self, state_dir: Path, progress: Progress) -> None:
        self._state_dir = state_dir
        self._progress = progress
        self._outcomes: dict[str, StepOutcome] = {}
        self._error: VibeServeError | None = None

    def run(self, order: Sequence[Step]) -> dict[str, StepOutcome]:
        from invoke.context import Context

        for step in order:
            stop_if_asked()
            failed = [name for name in step.deps if name not in self._outcomes]
            if failed:
                self._tell(step, StepState.SKIPPED, detail=f"needs {', '.join(failed)}")
                continue
            try:
                self._outcomes[step.name] = self.to_task(step)(Context())
            except VibeServeError as error:
                refuse_full_disk(self._state_dir)  # whatever failed, that is why, and the next step would fail, too
                self._error = self._error or error
        if self._error:
            raise self._error
        return self._outcomes

    def to_task(self, step: Step) -> Task[Any]:
        """The step as an invoke task. Its body reuses the stamp where nothing changed."""
        from invoke.tasks import Task

        def body(context: Context) -> StepOutcome:
            return self._bring_up_to_date(step)

        body.__doc__ = step.help or step.name
        return Task(body, name=step.name)

    def _bring_up_to_date(self, step: Step) -> StepOutcome:
        upstream = {name: self._outcomes[name] for name in step.deps}
        key = step_key(step, upstream)
        stamp_path = self._step_dir(step) / "stamp.json"
        stamp = read_stamp(stamp_path)
        why = _why_stale(stamp, key=key, step=step)
        if stamp is not None and not why:
            self._tell(step, StepState.UP_TO_DATE)
            return _outcome(stamp, StepState.UP_TO_DATE)
        self._tell(step, StepState.STARTED, detail=why)
        started = time.monotonic()
        try:
            fresh = self._run_body(step, key=key, upstream=upstream)
        except VibeServeError as error:
            detail = str(error).splitlines()[0]
            self._tell(step, StepState.FAILED, detail=detail, seconds=time.monotonic() - started)
            raise
        write_stamp(stamp_path, fresh)
        self._tell(step, StepState.RAN, seconds=fresh.seconds)
        return _outcome(fresh, StepState.RAN)

    def _run_body(self, step: Step, *, key: str, upstream: Mapping[str, StepOutcome]) -> Stamp:
        work_dir = self._step_dir(step) / "work"
        work_dir.mkdir(parents=True, exist_ok=True)
        context = StepContext(
            name=step.name, key=key, work_dir=work_dir, inputs=step.inputs, upstream=upstream, progress=self._progress
        )
        started = time.monotonic()
        result: StepResult = step.body(context)
        document = json.loads(canonical_json(result.document))
        outputs = tuple(dict.fromkeys((*step.outputs, *result.outputs)))
        return make_stamp(step.name, key=key, document=document, outputs=outputs, seconds=time.monotonic() - started)

    def _step_dir(self, step: Step) -> Path:
        return self._state_dir / "steps" / step.name

    def _tell(self, step: Step, state: StepState, *, detail: str = "", seconds: float = 0.0) -> None:
        timed = f" in {seconds:.1f} s" if seconds else ""
        text = f"{state.value}{timed}" + (f": {detail}" if detail else "")
        self._progress.event(step.name, text, state=state.value, seconds=round(seconds, 3))


def step_key(step: Step, upstream: Mapping[str, StepOutcome]) -> str:
    """SHA-256 over the step's name, inputs and upstream result digests."""
    digests = {name: outcome.digest for name, outcome in upstream.items()}
    return digest_of({"step": step.name, "inputs": step.inputs, "upstream": digests})


def _why_stale(stamp: Stamp | None, *, key: str, step: Step) -> str:
    if stamp is None:
        return "first run"
    if stamp.key != key:
        return "its inputs changed"
    if not {str(path) for path in step.outputs} <= set(stamp.outputs):
        return "it declares another output"
    return what_changed(stamp)


def _outcome(stamp: Stamp, state: StepState) -> StepOutcome:
    return StepOutcome(
        name=stamp.name, state=state, document=stamp.document, digest=stamp.digest,
        outputs=tuple(Path(name) for name in stamp.outputs), seconds=stamp.seconds,
    )  # fmt: skip


@contextmanager
def _lock(state_dir: Path) -> Iterator[None]:
    state_dir.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state_dir / "build.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InfraError(
                f"another vibeserve process is building in {state_dir}\nnext: wait for it, or end it, and start again"
            ) from None
        yield
    finally:
        os.close(descriptor)
