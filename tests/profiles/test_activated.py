"""Nothing of what a proposal changed was seen to run: when a profile says so, and when it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profile_samples import profile_sample

from vibeserve.core.nouns import Activation, ActivationState
from vibeserve.profiles import Profile, Structure, judged_activation, spans_profile
from vibeserve.profiles.activated import why_unknown
from vibeserve.profiles.changes import Changes, changes_of

ENGINE = """import torch

LIMIT = 8


class Engine(Base):
    def run(self, rows):
        for row in rows:
            step(row)

    def stop(self):
        drain(self)


def step(row):
    return torch.matmul(row, row)
"""
DEAD = ENGINE + """

def packed_step(row):
    return [torch.matmul(each, each) for each in row]
"""
BEFORE = Activation(state=ActivationState.SEEN, text="seen", seen=("runtime/engine.py",))


def tree(root: Path, **files: str) -> Path:
    """A workspace; `engine_py` is `runtime/engine.py`."""
    (root / "runtime").mkdir(parents=True)
    for name, text in {"engine_py": ENGINE, **files}.items():
        stem, _, suffix = name.rpartition("_")
        folder = root if stem in ("service", "README") else root / "runtime"
        (folder / f"{stem}.{suffix}").write_text(text)
    return root


def changed(tmp_path: Path, before: dict[str, str] | None = None, **files: str) -> Changes:
    return changes_of(tree(tmp_path / "now", **files), parent=tree(tmp_path / "before", **(before or {})))


def seen(*functions: str, **changes: Any) -> Profile:
    return profile_sample(structure=Structure(functions=functions), **changes)


def judged(tmp_path: Path, profile: Profile | None, found: Activation = BEFORE, **files: str) -> Activation:
    workspace, parent = tree(tmp_path / "now", **files), tree(tmp_path / "before")
    return judged_activation(found, profile=profile, workspace=workspace, parent=parent)


RAN = seen("runtime/engine.py:Engine.run", "runtime/engine.py:step")


def test_code_that_is_never_called_is_not_activated_whatever_its_file_does(tmp_path: Path) -> None:
    found = judged(tmp_path, RAN, engine_py=DEAD)
    assert (found.state, found.seen) == (ActivationState.NOT_ACTIVATED, ())
    assert found.text == (
        "nothing of what it changes was seen in 398 samples, which show whatever takes 0.8% of the time: "
        "runtime/engine.py:packed_step"
    )


@pytest.mark.parametrize("name", ["packed_step", "packed_step.<locals>.<listcomp>", "Engine.packed_step"])
def test_anything_of_it_that_ran_is_enough(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, seen("runtime/engine.py:step", f"runtime/engine.py:{name}"), engine_py=DEAD) == BEFORE


@pytest.mark.parametrize(
    "profile",
    [
        None,
        spans_profile({"http": 1.0}, load="c4"),
        replace(RAN, is_timed=False),
        replace(RAN, num_samples=149),
        seen(),
        seen(*(f"runtime/a.py:f{number}" for number in range(400))),
    ],
)
def test_a_profile_that_tells_nothing_refuses_nothing(tmp_path: Path, profile: Profile | None) -> None:
    assert judged(tmp_path, profile, engine_py=DEAD) == BEFORE


def test_a_librarys_symbol_that_is_new_is_evidence_enough(tmp_path: Path) -> None:
    found = replace(BEFORE, seen=("mkldnn",))
    assert judged(tmp_path, RAN, found, engine_py=DEAD) == found


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({"engine_py": ENGINE.replace("LIMIT = 8", "LIMIT = 16")}, "runtime/engine.py: LIMIT is something else"),
        ({"engine_py": ENGINE + "torch.set_num_threads(2)\n"}, "runtime/engine.py: runs at import: line 17"),
        ({"engine_py": ENGINE + "torch.backends.on = True\n"}, "runtime/engine.py: torch is something else"),
        ({"engine_py": ENGINE.replace("(Base)", "(Fast)")}, "runtime/engine.py: class Engine is derived otherwise"),
        (
            {"engine_py": ENGINE.replace("    def stop(self):\n        drain(self)\n", "")},
            "runtime/engine.py: Engine.stop is gone: what it hid acts now",
        ),
        (
            {"engine_py": "from runtime.fast import step\n" + ENGINE.partition("def step")[0]},
            "runtime/engine.py: step is something else",
        ),
        ({"engine_py": "def f(:\n"}, "runtime/engine.py"),
        ({"table_json": "{}"}, ""),
        ({"service_yaml": "argv: [x]\n"}, "service.yaml: argv"),
        ({"service_yaml": "build: [make]\n"}, ""),
    ],
)
def test_what_acts_without_a_changed_function_is_not_for_a_profile_to_judge(
    tmp_path: Path, files: dict[str, str], why: str
) -> None:
    found = changed(tmp_path, **files)
    assert found.elsewhere == ((why,) if why else ())
    assert why_unknown(found) == (f"it changes more than functions: {why}" if why else "it changes no function")


def test_data_and_native_code_that_were_there_count_as_used(tmp_path: Path) -> None:
    before = {"table_json": "{}", "fast_cpp": "int f() { return 1; }\n", "slow_cpp": ""}
    now = {"table_json": "[]", "fast_cpp": "int f() { return 2; }\n", "slow_cpp": "", "new_cpp": "int g;"}
    found = changed(tmp_path, before, **now)
    assert found.elsewhere == ("runtime/fast.cpp", "runtime/table.json")
    assert found.native == ("runtime/new.cpp",)


def test_words_beside_the_code_are_no_change(tmp_path: Path) -> None:
    head = "    def run(self, rows):\n"
    text = ENGINE.replace(head, f'{head}        """Runs."""\n        # all\n')
    assert changed(tmp_path, engine_py=f'"""The engine."""\n{text}', README_md="# Runtime\n") == Changes()


def test_new_constants_and_imports_are_reached_by_new_code_alone(tmp_path: Path) -> None:
    constants = "LIMIT = 8\nWIDTH: int = 4\nTABLE = frozenset((1, 2))"
    text = DEAD.replace("import torch", "import math, torch").replace("LIMIT = 8", constants)
    found = changed(tmp_path, engine_py=text)
    assert found.elsewhere == ()
    assert [str(each) for each in found.functions] == ["runtime/engine.py:packed_step"]
    assert why_unknown(found) == ""


@pytest.mark.parametrize(
    "code",
    [
        "def limit(rows):\n    return min(len(rows), 8) + 1\n",
        "@lru_cache\ndef table(width):\n    return [torch.ones(width)]\n",
        "class Fast:\n    def __init__(self, rows):\n        self.rows = [torch.ones(row) for row in rows]\n",
    ],
)
def test_what_is_too_short_or_ran_before_the_profiler_looked_is_unknown(tmp_path: Path, code: str) -> None:
    assert judged(tmp_path, RAN, engine_py=f"{ENGINE}\n\n{code}") == BEFORE
    assert judged(tmp_path / "with_more", RAN, engine_py=f"{DEAD}\n\n{code}").state is ActivationState.NOT_ACTIVATED


def test_a_deep_expression_is_no_code_that_is_judged(tmp_path: Path) -> None:
    deep = "x = " + "-" * 100_000 + "1\n"
    assert changed(tmp_path, deep_py=deep).elsewhere == ("runtime/deep.py",)


def test_an_assembly_that_nobody_reads_is_a_list_and_no_code(tmp_path: Path) -> None:
    assert changed(tmp_path / "a", {"assembly_json": "1"}, assembly_json="2") == Changes()
    reads = ENGINE + "\n\ndef parts():\n    return open('assembly.json').read()\n"
    assert changed(tmp_path / "b", {"assembly_json": "1"}, assembly_json="2", engine_py=reads).elsewhere == (
        "runtime/assembly.json",
    )
