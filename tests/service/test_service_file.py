"""service.yaml is written by a candidate: every fault is a typed refusal that says what is valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.core.paths import data_dir
from vibeserve.errors import RefusedError
from vibeserve.service import candidate_launch, read_service, service_refusals

ARGV = 'argv: ["{python}", "-m", "runtime", "{model_dir}", "{host}", "{port}"]\n'


def _refused(tmp_path: Path, text: str, **options: tuple[str, ...]) -> dict[str, str]:
    (tmp_path / "service.yaml").write_text(text)
    return {refusal.reason_class: refusal.text for refusal in service_refusals(tmp_path, **options)}


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(
        ARGV + 'build: ["{python}", "-m", "runtime.build"]\nbuild_timeout_s: 60\nready: {path: /live, timeout_s: 5}\n'
        "env: {MODE: fast}\n"
    )
    service = read_service(tmp_path)
    assert service.argv[:3] == ("{python}", "-m", "runtime")
    assert service.build == ("{python}", "-m", "runtime.build")
    assert (service.build_timeout_s, service.ready.path, service.ready.timeout_s) == (60.0, "/live", 5.0)
    assert service.env == {"MODE": "fast"}


def test_the_scaffolds_own_file_is_accepted() -> None:
    workspace = data_dir("templates") / "runtime" / "text"
    assert service_refusals(workspace) == []


@pytest.mark.parametrize(
    ("text", "reason_class", "said"),
    [
        ("argv: [", "bad_yaml", "is not YAML"),
        ("[]", "bad_field", "must hold a mapping"),
        ("build: null\n", "bad_field", 'missing value for field "argv"'),
        (ARGV + "command: x\n", "bad_field", "known fields: argv, build"),
        (ARGV + "build_timeout_s: long\n", "bad_field", "build_timeout_s"),
        (ARGV + "build_timeout_s: 0\n", "bad_field", r"must lie in (0, 3600]"),
        (ARGV + "ready: {path: health}\n", "bad_field", "must start with '/'"),
        (ARGV + "schema_version: 2\n", "bad_field", "this version reads 1"),
        ("argv: []\n", "bad_argv", "argv is empty"),
        (ARGV.replace("{python}", "bash"), "bad_argv", "a runtime starts with '{python}'"),
        (
            ARGV.replace("{host}", "{hsot}"),
            "unknown_placeholder",
            "valid: {python} {model_dir} {host} {port} {threads}",
        ),
        (ARGV.replace("{host}", "localhost"), "missing_placeholder", "argv does not use '{host}'"),
        (ARGV + 'build: ["{python}", "{model_dir}"]\n', "unknown_placeholder", "valid: {python} {threads}"),
        (ARGV.replace('"runtime"', '"runtime", "/etc/passwd"'), "outside_path", "'/etc/passwd', a path outside"),
        (ARGV.replace('"runtime"', '"runtime", "--x=../y"'), "outside_path", "'--x=../y', a path outside"),
        (ARGV.replace('"runtime"', '"vllm.entrypoints.openai"'), "engine", "the engine 'vllm.entrypoints.openai'"),
        (ARGV.replace('"runtime"', '"vibeserve"'), "engine", "the engine 'vibeserve'"),
        (ARGV + "env: {LD_PRELOAD: x.so}\n", "bad_env", "env sets LD_PRELOAD"),
        (ARGV + "env: {PYTHONPATH: x}\n", "bad_env", "env sets PYTHONPATH"),
        (ARGV + "env: {OMP_NUM_THREADS: '9'}\n", "bad_env", "env sets OMP_NUM_THREADS"),
    ],
)
def test_faults_are_refused(tmp_path: Path, text: str, reason_class: str, said: str) -> None:
    refusals = _refused(tmp_path, text)
    assert reason_class in refusals, refusals
    assert said in refusals[reason_class]


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    assert [refusal.reason_class for refusal in service_refusals(tmp_path)] == ["missing_file"]


def test_an_allowed_engine_may_be_named(tmp_path: Path) -> None:
    text = ARGV.replace('"runtime"', '"vllm"')
    assert _refused(tmp_path, text, allow_engines=("vllm",)) == {}


def test_the_error_carries_every_reason(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(ARGV.replace("{host}", "{hsot}") + "env: {LD_PRELOAD: x}\n")
    with pytest.raises(RefusedError, match=r"service\.yaml is refused") as caught:
        candidate_launch(tmp_path, model_dir=tmp_path)
    classes = [getattr(reason, "reason_class", None) for reason in caught.value.reasons]
    assert classes == ["unknown_placeholder", "missing_placeholder", "bad_env"]
    assert {getattr(reason, "gate", None) for reason in caught.value.reasons} == {"service"}


def test_a_candidate_sees_no_engine_but_those_allowed(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text(ARGV)
    hidden = candidate_launch(tmp_path, model_dir=tmp_path, allow_engines=["vllm"]).hidden_modules
    assert {"transformers", "llama_cpp", "openvino_genai", "accelerate", "vibeserve"} <= set(hidden)
    assert "vllm" not in hidden
