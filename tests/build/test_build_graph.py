"""The build graph: order, content-keyed reuse, early cut-off, failures, invoke."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from vibeserve.build import Step, StepContext, StepOutcome, StepResult, StepState, execute
from vibeserve.errors import InfraError, RefusedError, WeightsError
from vibeserve.progress import QuietProgress


class Graph:
    """weights -> reference -> certify, and baselines beside reference; every body counts its runs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state_dir = root / "state"
        self.inputs: dict[str, object] = {"weights": 1, "reference": 1, "baselines": 1, "certify": 1}
        self.ran: list[str] = []
        self.failing: dict[str, Exception] = {}
        self.progress = QuietProgress()

    def steps(self) -> list[Step]:
        deps = {
            "weights": (),
            "reference": ("weights",),
            "baselines": ("weights",),
            "certify": ("reference", "baselines"),
        }
        made = [
            Step(name=name, body=self.body, deps=needed, inputs=self.inputs[name], outputs=(self.output(name),))
            for name, needed in deps.items()
        ]
        return made[::-1]

    def output(self, name: str) -> Path:
        return self.root / "out" / name

    def body(self, context: StepContext) -> StepResult:
        self.ran.append(context.name)
        if context.name in self.failing:
            raise self.failing[context.name]
        shutil.rmtree(self.output(context.name), ignore_errors=True)
        self.output(context.name).mkdir(parents=True)
        # reference rounds its input down to tens: a change below that must not reach its dependants
        value = int(str(context.inputs)) // 10 if context.name == "reference" else context.inputs
        (self.output(context.name) / "data.txt").write_text(f"{value}")
        return StepResult(document={"value": value, "upstream": sorted(context.upstream)})

    def run(self, until: tuple[str, ...] = ()) -> dict[str, StepOutcome]:
        self.ran.clear()
        self.progress = QuietProgress()
        return execute(self.steps(), state_dir=self.state_dir, progress=self.progress, until=until)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return Graph(tmp_path)


def test_steps_run_in_order_and_see_their_upstream(graph: Graph) -> None:
    outcomes = graph.run()
    assert graph.ran[0] == "weights" and graph.ran[-1] == "certify" and len(graph.ran) == 4
    assert outcomes["certify"].document == {"value": 1, "upstream": ["baselines", "reference"]}
    assert outcomes["certify"].outputs == (graph.output("certify"),)
    assert outcomes["weights"].state is StepState.RAN


def test_the_same_again_is_up_to_date_with_equal_documents(graph: Graph) -> None:
    first = graph.run()
    second = graph.run()
    assert graph.ran == []
    assert {name: (item.document, item.digest) for name, item in second.items()} == {
        name: (item.document, item.digest) for name, item in first.items()
    }
    assert [text for _, text in graph.progress.events] == ["up to date"] * 4


def test_a_changed_input_redoes_what_depends_on_it(graph: Graph) -> None:
    graph.run()
    graph.inputs["baselines"] = 2
    graph.run()
    assert graph.ran == ["baselines", "certify"]
    assert ("baselines", "started: its inputs changed") in graph.progress.events


def test_an_equal_result_cuts_off_early(graph: Graph) -> None:
    graph.run()
    graph.inputs["reference"] = 2
    graph.run()
    assert graph.ran == ["reference"]
    graph.inputs["reference"] = 20
    graph.run()
    assert graph.ran == ["reference", "certify"]


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda path: path.unlink(), "data.txt is gone"),
        (lambda path: path.write_text("other"), "data.txt was changed"),
        (lambda path: (path.parent / "extra").write_text(""), "extra is new"),
    ],
)
def test_a_damaged_output_redoes_that_step_alone(graph: Graph, damage: Callable[[Path], object], why: str) -> None:
    graph.run()
    damage(graph.output("baselines") / "data.txt")
    graph.run()
    assert graph.ran == ["baselines"]
    assert any(step == "baselines" and text.endswith(why) for step, text in graph.progress.events)


def test_a_touched_but_equal_output_is_up_to_date(graph: Graph) -> None:
    graph.run()
    path = graph.output("weights") / "data.txt"
    path.write_text(path.read_text())
    graph.run()
    assert graph.ran == []


def test_a_failure_skips_dependants_runs_the_rest_and_raises_the_typed_error(graph: Graph) -> None:
    graph.failing["reference"] = WeightsError("digest does not match\nmore")
    with pytest.raises(WeightsError, match="digest does not match"):
        graph.run()
    assert sorted(graph.ran) == ["baselines", "reference", "weights"]
    texts = dict(graph.progress.events)
    assert texts["reference"].startswith("failed") and texts["reference"].endswith("digest does not match")
    assert texts["certify"] == "skipped: needs reference"
    graph.failing.clear()
    graph.run()
    assert graph.ran == ["reference", "certify"]


def test_the_first_of_two_failures_is_raised(graph: Graph) -> None:
    graph.failing = {"baselines": RefusedError("first"), "reference": RefusedError("first")}
    with pytest.raises(RefusedError, match="first"):
        graph.run()
    assert "certify" not in graph.ran


def test_a_bug_is_not_swallowed(graph: Graph) -> None:
    graph.failing["weights"] = KeyError("bug")
    with pytest.raises(KeyError):
        graph.run()
    assert graph.ran == ["weights"]


def test_until_runs_only_what_is_needed(graph: Graph) -> None:
    assert set(graph.run(until=("reference",))) == {"weights", "reference"}


def test_an_unreadable_stamp_only_means_running_again(graph: Graph) -> None:
    graph.run()
    (graph.state_dir / "steps" / "weights" / "stamp.json").write_text('{"half":')
    graph.run()
    assert graph.ran == ["weights"]


def test_the_stamp_is_a_document_with_output_digests(graph: Graph) -> None:
    graph.run()
    stamp = json.loads((graph.state_dir / "steps" / "weights" / "stamp.json").read_text())
    assert stamp["schema_version"] == 1 and len(stamp["key"]) == 64
    assert len(stamp["files"][str(graph.output("weights") / "data.txt")]["sha256"]) == 64


def test_results_do_not_depend_on_where_they_lie(tmp_path: Path) -> None:
    digests = [{name: item.digest for name, item in Graph(tmp_path / place).run().items()} for place in ("a", "b")]
    assert digests[0] == digests[1]


def test_a_body_that_does_not_make_its_output_fails(tmp_path: Path) -> None:
    step = Step(name="weights", body=lambda context: StepResult(document=1), outputs=(tmp_path / "absent",))
    with pytest.raises(InfraError, match=r"step 'weights' did not make its output .*absent"):
        execute([step], state_dir=tmp_path / "state", progress=QuietProgress())


def test_a_second_build_in_the_same_folder_is_refused(graph: Graph) -> None:
    def body(context: StepContext) -> StepResult:
        graph.run()
        return StepResult(document=None)

    with pytest.raises(InfraError, match="another vibeserve process is building in"):
        execute([Step(name="outer", body=body)], state_dir=graph.state_dir, progress=QuietProgress())


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([("a", ("b",)), ("b", ("a",))], "cycle"),
        ([("a", ("x",))], "unknown step 'x'; known: a"),
        ([("a", ()), ("a", ())], "declared twice"),
    ],
)
def test_a_wrong_graph_is_a_fault_of_the_program(
    tmp_path: Path, steps: list[tuple[str, tuple[str, ...]]], message: str
) -> None:
    made = [Step(name=name, deps=deps, body=lambda context: StepResult(document=None)) for name, deps in steps]
    with pytest.raises(ValueError, match=message):
        execute(made, state_dir=tmp_path, progress=QuietProgress())


def test_invoke_lists_and_runs_the_steps(capsys: pytest.CaptureFixture[str]) -> None:
    from invoke import Program

    from vibeserve.build.collection import step_collection

    calls: list[tuple[str, str, list[str]]] = []
    steps = {"weights": "have the weights", "certify": "certify the winner"}
    program = Program(namespace=step_collection(steps, run=lambda *call: calls.append(call)), name="build", version="1")
    program.run(["build", "--list"], exit=False)
    listed = capsys.readouterr().out
    assert "weights   have the weights" in listed and "certify   certify the winner" in listed
    program.run(["build", "certify", "--target=tiny_cpu", "--override", "budget=smoke"], exit=False)
    assert calls == [("certify", "tiny_cpu", ["budget=smoke"])]
