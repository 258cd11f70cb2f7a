"""An artifact whose workload replays a trace, or reads tasks, ships them."""

from __future__ import annotations

from pathlib import Path

from artifact_samples import package_sample

from vibeserve.artifact.open import read_spec
from vibeserve.spec import Load, Spec, TargetInfo, Workload


def test_the_trace_is_part_of_the_artifact_and_found_there(tmp_path: Path) -> None:
    trace = tmp_path / "monday.jsonl"
    trace.write_text('{"prompt_tokens": 20, "output_tokens": 4}\n')
    workload = Workload(kind="trace", trace=str(trace), loads={"c1": Load(concurrency=1)}, headline_load="c1")
    spec = Spec(target=TargetInfo(name="sample"), workload=workload)
    packaged = package_sample(tmp_path / "sample", spec=spec)
    assert "trace: traffic/monday.jsonl" in (packaged.path / "spec.yaml").read_text()
    trace.unlink()
    found = Path(read_spec(packaged.path).workload.trace)
    assert found == packaged.path.resolve() / "traffic" / "monday.jsonl"
    assert found.read_text() == '{"prompt_tokens": 20, "output_tokens": 4}\n'
    assert "traffic/monday.jsonl" in (packaged.path / "SHA256SUMS").read_text()


def test_the_users_own_tasks_are_part_of_the_artifact(tmp_path: Path) -> None:
    tasks = tmp_path / "debug.jsonl"
    tasks.write_text('{"incorrect_solutions": "print(1)"}\n')
    workload = Workload(
        kind="code_edit", edit_tasks=str(tasks), loads={"c1": Load(concurrency=1)}, headline_load="c1"
    )
    packaged = package_sample(tmp_path / "sample", spec=Spec(target=TargetInfo(name="sample"), workload=workload))
    tasks.unlink()
    found = Path(read_spec(packaged.path).workload.edit_tasks)
    assert found == packaged.path.resolve() / "traffic" / "debug.jsonl"
    assert found.read_text() == '{"incorrect_solutions": "print(1)"}\n'
