"""What tools write is read as data: torn lines are left out, frames find their part of the runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from profile_samples import FOLDED

from vibeserve.profiles.linux_perf import native_symbols
from vibeserve.profiles.samples import NativeSample, PythonFrame, Stack, num_instants, parse_folded, parse_perf
from vibeserve.profiles.seams import OUTSIDE, is_waiting, kind_of, lines_of, path_in_runtime, seam_of

PERF = (Path(__file__).parent / "perf_script.txt").read_text()
"""`perf script` of a server behind its wall, cut down"""


def stack(*frames: tuple[str, str, int]) -> Stack:
    return Stack(pid=7, tid="4", thread="engine", frames=tuple(PythonFrame(*each) for each in frames), count=1)


def no_source(file: str, line: int) -> str:
    return ""


def test_folded_stacks_are_read_with_their_threads() -> None:
    stacks = parse_folded(FOLDED)
    assert len(stacks) == 8
    assert {(each.pid, each.tid, each.thread) for each in stacks} == {(7, "2", "MainThread"), (7, "4", "engine")}
    assert str(stacks[2].frames[-1]) == "spin (runtime/sampler.py:72)"
    assert num_instants(stacks) == 200, "every look sees both threads"


@pytest.mark.parametrize(
    "line",
    [
        "", "5", "no thread;f (a.py:1) 5", 'process 7:"x";thread (4): e;f (a.py:1) many',
        'process 7:"x";thread (4): e;f (a.py:1) -5', 'process 7:"x";thread (4): e;f (a.py:1) 0', "\x00\x01 7",
        'process 7:"x";thread (4): e;f (a.py:1) ²',
    ],
)  # fmt: skip
def test_a_line_that_is_no_stack_is_left_out(line: str) -> None:
    assert parse_folded(line) == []


def test_a_command_line_may_hold_what_it_likes() -> None:
    (found,) = parse_folded('process 9:"sh -c a;b (c.py:1);d";thread (0x7F12): w;f (runtime/linear.py:3) 2')
    assert (found.pid, found.tid, found.thread, found.count) == (9, "0x7F12", "w", 2)
    assert [frame.function for frame in found.frames] == ["f"]


def test_a_childs_stack_is_its_own_and_not_its_parents() -> None:
    line = 'process 59:"python mp.py";process 63:"python -c x; y --fork";thread (63): MainThread;work (mp.py:4) 9'
    (found,) = parse_folded(line)
    assert (found.pid, found.tid, [frame.function for frame in found.frames]) == (63, "63", ["work"])


def test_names_that_are_chosen_cannot_pass_for_several_or_fill_a_page() -> None:
    name = "# Answer\u2028{}| " + "x" * 500
    (found,) = parse_folded(f'process 9:"x";thread (1): {name};{name} (runtime/a.py:1) 1')
    assert len(found.thread) <= 32 and len(found.frames[0].function) <= 120
    assert not set(found.thread + found.frames[0].function) & set("#{}|\u2028\n")


def test_threads_that_are_few_do_not_make_more_instants() -> None:
    assert num_instants([]) == 0
    assert num_instants(parse_folded(FOLDED)[:1]) == 170


def test_perf_gives_the_innermost_function_outside_the_kernel() -> None:
    found = parse_perf(PERF)
    assert [(each.tid, each.symbol, each.library) for each in found] == [
        (18625, "__GI___pthread_disable_asynccancel", "libc.so.6"),
        (18625, "pthread_cond_signal", "libc.so.6"),
        (18558, "_PyEval_EvalFrameDefault", "libpython3.11.so.1.0"),
        (18625, "at::native::gemm (anonymous namespace)", "libtorch_cpu.so"),
        (18625, "mkl_blas_def_xsgemv", "libtorch_cpu.so"), (18626, "read_hpet", "[kernel.kallsyms]"),
    ]  # fmt: skip
    assert parse_perf("") == parse_perf("nothing\n\nthat fits\n") == []


def test_the_interpreter_the_kernel_and_waiting_are_no_symbols_of_a_runtime() -> None:
    symbols = native_symbols(parse_perf(PERF))
    assert [(each.name, each.kind, each.share) for each in symbols] == [
        ("__GI___pthread_disable_asynccancel", "", 0.1667),
        ("at::native::gemm (anonymous namespace)", "matmul", 0.1667),
        ("mkl_blas_def_xsgemv", "matmul", 0.1667),
    ]  # fmt: skip
    assert native_symbols([NativeSample(1, "[unknown]", "libfast.so")]) == ()


@pytest.mark.parametrize(
    ("symbol", "kind"),
    [
        ("mkldnn_primitive_execute", "matmul"), ("brgemm_kernel", "matmul"), ("__memcpy_avx_unaligned_erms", "copy"),
        ("at::native::softmax_lastdim_kernel", "softmax"), ("flash_attention_kernel", "attention"),
        ("gomp_team_barrier_wait_end", "wait"), ("_PyEval_EvalFrameDefault", "interpreter"), ("step", ""),
    ],
)  # fmt: skip
def test_a_native_symbol_says_what_it_does(symbol: str, kind: str) -> None:
    assert kind_of(symbol) == kind


@pytest.mark.parametrize(
    ("file", "path"),
    [
        ("runtime/sampler.py", "sampler.py"), ("/run/w/runtime/kernels/rows.py", "kernels/rows.py"),
        ("/venv/lib/python3.11/site-packages/torch/runtime/x.py", ""), ("threading.py", ""), ("myruntime/x.py", ""),
        ("/usr/lib/python3.11/runtime/x.py", ""),
    ],
)  # fmt: skip
def test_what_is_the_runtimes_own(file: str, path: str) -> None:
    assert path_in_runtime(file) == path


def test_a_stack_belongs_to_its_innermost_seam() -> None:
    engine, sample = ("Engine._execute", "runtime/engine.py", 1), ("Sampler.sample", "runtime/sampler.py", 2)
    assert seam_of(stack(engine, sample, ("argmax", "torch/functional.py", 9))) == "sampler"
    assert seam_of(stack(engine, sample, ("make", "runtime/helpers.py", 3))) == "sampler", "a helper is its caller's"
    assert seam_of(stack(engine)) == "engine", "a module that is no seam is told by its name"
    assert seam_of(stack(("run", "asyncio/runners.py", 1))) == OUTSIDE
    assert seam_of(stack(engine, ("rows", "runtime/linear/rows.py", 1))) == "linear", "a seam may be a folder"


def test_waiting_is_a_call_for_work_and_sleep_is_none() -> None:
    def source(file: str, line: int) -> str:
        return {1: "command = self._commands.get(block=True)", 2: "time.sleep(0.01)", 3: "x = known.get(key)"}[line]

    leaf = "runtime/engine.py"
    assert is_waiting(
        stack(("run", "uvicorn/main.py", 5), ("Runner.run", "asyncio/runners.py", 118)), source_line=source
    )
    assert is_waiting(stack(("Condition.wait", "threading.py", 320)), source_line=source)
    assert is_waiting(stack(("Engine._take", leaf, 1)), source_line=source)
    assert not is_waiting(stack(("Engine._pace", leaf, 2)), source_line=source)
    assert not is_waiting(stack(("Engine._look", leaf, 3)), source_line=source)
    assert not is_waiting(stack(("run", "runtime/asyncio/runners.py", 1)), source_line=no_source)
    assert not is_waiting(stack(), source_line=source)


def test_source_lines_come_from_the_workspace_and_from_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "w/runtime").mkdir(parents=True)
    (tmp_path / "w/runtime/a.py").write_text("one\ntwo\n")
    (tmp_path / "secret.py").write_text("three\n")
    (tmp_path / "w/runtime/link.py").symlink_to(tmp_path / "secret.py")
    line = lines_of(tmp_path / "w")
    assert line("/elsewhere/runtime/a.py", 2) == "two"
    assert line("runtime/a.py", 9) == line("runtime/a.py", 0) == line("runtime/b.py", 1) == ""
    assert line("runtime/link.py", 1) == line("runtime/../../secret.py", 1) == ""
