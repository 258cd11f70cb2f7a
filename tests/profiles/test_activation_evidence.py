"""Did the new path run? Asked of the framework's profiler; the candidate's own counters never answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profile_samples import profile_sample

from vibeserve.core.nouns import Activation, ActivationState
from vibeserve.profiles import NativeSymbol, Profile, Structure, changed_files, check_activation, spans_profile
from vibeserve.profiles.activation import names_in

LINEAR = """class Packed:
    def __call__(self):
        return rows()


def rows():
    def inner(): ...
    return 1
"""
NATIVE = """#include <x.h>
extern "C" void packed_gemm(const float* a, int n) {
  for (int i = 0; i < n; ++i) { step(a); }
}
static inline int helper(int n) { return n; }
int declared_only(int n);
"""
CHANGED = ("runtime/linear.py", "runtime/kernels.cpp")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    (runtime / "linear.py").write_text(LINEAR)
    (runtime / "model.py").write_text("def forward():\n    return 2\n")
    (runtime / "broken.py").write_text("def f(:\n")
    (runtime / "kernels.cpp").write_text(NATIVE)
    return tmp_path


def seen(*functions: str, symbols: tuple[str, ...] = ()) -> Profile:
    native = tuple(NativeSymbol(name=name, library="libx.so") for name in symbols)
    return profile_sample(structure=Structure(functions=functions, symbols=native))


def check(text: str, workspace: Path, profile: Profile | None, **changes: Any) -> Activation:
    return check_activation(text, profile=profile, workspace=workspace, **{"changed": CHANGED, **changes})


RAN = seen("runtime/linear.py:Packed.__call__", "runtime/model.py:forward", symbols=("packed_gemm", "mkldnn_execute"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("`runtime/linear.py` runs", "runtime/linear.py"), ("linear.py runs", "runtime/linear.py"),
        ("the class `Packed`", "runtime/linear.py:Packed"), ("Packed.__call__", "runtime/linear.py:Packed.__call__"),
        ("runtime/linear.py:Packed.__call__ shows up", "runtime/linear.py:Packed.__call__"),
        ("packed_gemm in the trace", "runtime/kernels.cpp:packed_gemm"), ("calls `mkldnn`", "mkldnn"),
    ],
)  # fmt: skip
def test_what_was_named_and_ran_is_seen(workspace: Path, text: str, told: str) -> None:
    found = check(text, workspace, RAN)
    assert (found.state, told in found.seen) == (ActivationState.SEEN, True), found
    assert found.text.startswith("seen in 398 samples of stacks and 53 of native code: ")


def test_what_was_named_and_did_not_run_is_not_seen(workspace: Path) -> None:
    found = check("`rows` runs", workspace, RAN)
    assert found.state is ActivationState.NOT_SEEN
    assert found.text == "not seen in 398 samples of stacks and 53 of native code: runtime/linear.py:rows"
    found = check("`helper` of the kernels, declared_only", workspace, RAN)
    assert (found.state, found.unseen) == (ActivationState.NOT_SEEN, ("runtime/kernels.cpp:helper",))


def test_both_are_told_where_there_are_both(workspace: Path) -> None:
    found = check("`Packed` calls `rows`", workspace, RAN)
    assert found.state is ActivationState.SEEN
    assert (found.seen, found.unseen) == (("runtime/linear.py:Packed",), ("runtime/linear.py:rows",))


def test_code_that_is_as_in_the_incumbent_is_no_evidence(workspace: Path) -> None:
    found = check("`forward` runs", workspace, RAN)
    assert found.state is ActivationState.NOT_CHECKABLE
    assert found.text == (
        "runtime/model.py:forward: the same code as in the incumbent, so that it runs says nothing of the change"
    )
    assert check("`forward` runs", workspace, RAN, changed=["runtime/model.py"]).state is ActivationState.SEEN


def test_a_librarys_symbol_that_ran_in_the_incumbent_is_no_evidence(workspace: Path) -> None:
    assert check("`mkldnn`", workspace, RAN, before=RAN).state is ActivationState.NOT_CHECKABLE
    assert check("`mkldnn`", workspace, RAN, before=seen("runtime/a.py:f")).state is ActivationState.SEEN


@pytest.mark.parametrize("text", ["decode.linear shrinks", "it is faster", "", "vllm:num_hits grows, `kv_usage` too"])
def test_evidence_that_names_no_code_cannot_be_checked(workspace: Path, text: str) -> None:
    found = check(text, workspace, RAN)
    assert found.state is ActivationState.NOT_CHECKABLE
    assert found.text == "the evidence names no function, module or symbol of the candidate"


@pytest.mark.parametrize("profile", [None, spans_profile({"decode.linear": 1.0}, load="c4")])
def test_the_candidates_own_counters_are_no_evidence(workspace: Path, profile: Profile | None) -> None:
    found = check("`Packed` runs", workspace, profile)
    assert found.state is ActivationState.NOT_CHECKABLE
    assert found.text == "no profiler of the framework's looked; the server's own counters are no evidence"


def test_counters_that_claim_functions_are_no_evidence_either(workspace: Path) -> None:
    assert check("`Packed`", workspace, replace(RAN, is_own_word=True)).state is ActivationState.NOT_CHECKABLE


def test_a_profile_that_saw_no_function_answers_nothing(workspace: Path) -> None:
    found = check("`Packed` runs", workspace, seen())
    assert (found.state, found.text) == (
        ActivationState.NOT_CHECKABLE, "the profiler saw no function of the runtime"
    )  # fmt: skip


def test_a_profile_that_is_not_timed_is_evidence_of_what_ran(workspace: Path) -> None:
    untimed = replace(RAN, is_timed=False, bottlenecks=())
    assert check("`Packed` runs", workspace, untimed).state is ActivationState.SEEN


def test_a_module_is_seen_by_its_functions_and_not_by_its_import(workspace: Path) -> None:
    found = check("`linear` runs", workspace, seen("runtime/linear.py:<module>"))
    assert (found.state, found.unseen) == (ActivationState.NOT_SEEN, ("runtime/linear.py",))


def test_a_part_of_a_symbol_is_a_whole_word_of_it(workspace: Path) -> None:
    profile = seen(symbols=("mkl_blas_def_sgemm_kernel_0", "at::native::softmax_lastdim"))
    assert check("`sgemm`", workspace, profile).seen == ("sgemm",)
    assert check("`gemm` runs", workspace, profile).state is ActivationState.NOT_CHECKABLE
    assert check("`native::softmax_lastdim`", workspace, profile).seen == ("native::softmax_lastdim",)


def test_names_are_told_from_words() -> None:
    text = "The linear layers call `Packed.run(x, y)` and packed_gemm; runtime/linear.py, then step() and FastPath."
    assert names_in(text) == ["Packed.run", "x", "y", "packed_gemm", "runtime/linear.py", "step", "FastPath"]


def test_files_of_a_patch() -> None:
    patch = "diff --git a/runtime/a b.py b/runtime/a b.py\n--- x\n+++ y\ndiff --git a/r/c.py b/r/c.py\n"
    assert changed_files(patch) == {"runtime/a b.py", "r/c.py"}
    assert changed_files("") == frozenset()
