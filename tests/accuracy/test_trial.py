"""The proof that a check can refuse: planted faults of a bundle that is no text, and of text."""

from __future__ import annotations

from pathlib import Path

import pytest
from numbers_target import CHECK, FAULTS, REFERENCE, WORKLOAD, numbers_ref, write_target

from vibeserve.accuracy import FaultResult, refuse_unproven, try_faults
from vibeserve.accuracy.trial import LoadedReferences, Remembered
from vibeserve.contract import Context, Request
from vibeserve.core.documents import to_data
from vibeserve.errors import ContractError, SpecError
from vibeserve.modalities import BundleRef
from vibeserve.spec import Tolerances, Workload

MILD = CHECK.replace("bound=0.01", "bound=1.5").replace("bound=0.005", "bound=1.5")


def tried(tmp_path: Path, **changes: str) -> dict[str, FaultResult]:
    folder = write_target(tmp_path / "numbers", **changes)
    results = try_faults(numbers_ref(folder), num_threads=1, run_dir=tmp_path / "run")
    return {result.name: result for result in results}


def test_every_wrong_output_is_refused_and_right_ones_pass(tmp_path: Path) -> None:
    results = tried(tmp_path)
    assert list(results) == [
        "reference_output", "output_of_another_request", "unhalved", "in_order", "off_by_one", "rounded",
    ]  # fmt: skip
    assert [result.refused for result in results.values()] == [False, True, True, True, True, False]
    assert all(result.is_as_declared for result in results.values())
    refuse_unproven(list(results.values()))
    assert results["unhalved"].reasons[0].startswith("accuracy/wrong_error: error_max is 1, at most 0.01 is allowed (")
    assert results["rounded"].line == "rounded (noisy): passed; error_max 0.0002, error_mean 0.0002"


def test_a_check_that_is_too_mild_stops_the_run_and_says_which_faults_passed(tmp_path: Path) -> None:
    results = tried(tmp_path, check=MILD)
    with pytest.raises(SpecError, match="the accuracy gate passes outputs that are wrong") as info:
        refuse_unproven(list(results.values()))
    text = str(info.value)
    assert "unhalved (wrong): passed; error_max 1, error_mean 1" in text
    assert "off_by_one (wrong): passed" in text
    assert "next: LIMITS and judge of check.py, or evaluation.tolerances of the target" in text
    assert info.value.exit_code == 2


def test_a_check_that_accepts_everything_is_found_out_though_its_own_faults_are_bent(tmp_path: Path) -> None:
    """Faults that only a broken server could send hide a check that cannot tell one request from another."""
    blind = CHECK.replace(
        "    if len", "    return [Distance(name='error', values=(0.0 if record.output else 9.0,))]\n    if len"
    )
    bent = FAULTS
    for old in ("list(reversed(request.payload))", "[value / 2 for value in request.payload]",
                "[value + 20 for value in references.exact().run(request)]"):  # fmt: skip
        bent = bent.replace(old, "[]")
    results = tried(tmp_path, check=blind, faults=bent)
    assert [name for name, result in results.items() if not result.is_as_declared] == ["output_of_another_request"]
    with pytest.raises(SpecError, match=r"output_of_another_request \(wrong\): passed"):
        refuse_unproven(list(results.values()))


def test_a_check_that_is_too_strict_is_tried_over_more_requests_before_it_stops_the_run(tmp_path: Path) -> None:
    strict = CHECK.replace("bound=0.01", "bound=0.00001")
    results = tried(tmp_path, check=strict)
    with pytest.raises(SpecError, match="the accuracy gate refuses right outputs") as info:
        refuse_unproven(list(results.values()))
    assert "rounded (noisy): refused; error_max 0.0002" in str(info.value)
    assert "accuracy/wrong_error: error_max is 0.0002, at most 1e-05 is allowed (48 values)" in str(info.value)
    assert (tmp_path / "run/again/faults_job.json").is_file()


def test_outputs_of_other_requests_are_wrong_only_where_they_differ(tmp_path: Path) -> None:
    constant = REFERENCE.replace("for value in reversed(request.payload)", "for value in (1.0, 2.0)")
    changed = FAULTS.replace("value / 2 for value in request.payload", "value for value in (9.0, 9.0)")
    changed = changed.replace("list(reversed(request.payload))", "[5.0, 5.0]")
    assert "output_of_another_request" not in tried(tmp_path, reference=constant, faults=changed)


def test_a_fault_is_refused_by_what_it_shows_on_its_face_too(tmp_path: Path) -> None:
    text = (
        MILD
        + """
from vibeserve.contract import Finding


def inspect(records):
    found = any(record.output != [value / 2 for value in reversed(record.request.payload)] for record in records)
    return [Finding(reason_class="odd", text="not the halves")] if found else []
"""
    )
    results = tried(tmp_path, check=text)
    assert results["unhalved"].reasons == ("accuracy/odd: not the halves",)
    assert not results["rounded"].refused, "right outputs are too few for rules over many replies"


BROKEN = {
    "two faults": (
        {"faults": FAULTS.replace('    Fault(name="in_order", is_wrong=True, make=in_order),\n', "")},
        r"faults\.py: FAULTS: 2 wrong outputs, 1 noisy ones",
    ),
    "no noisy one": (
        {"faults": FAULTS.replace("is_wrong=False", "is_wrong=True")}, r"FAULTS: 4 wrong outputs, 0 noisy ones",
    ),
    "other things": ({"faults": "FAULTS = (1, 2, 3, 4)\n"}, r"faults\.py: FAULTS holds int, int, int"),
    "make raises": (
        {"faults": FAULTS.replace("value + 20", "value + None")}, r"faults\.py:13: TypeError: unsupported operand",
    ),
    "output is no JSON": (
        {"faults": FAULTS.replace("list(reversed(request.payload))", "{1, 2}")},
        "TypeError: Object of type set is not JSON serializable",
    ),
    "stream ends": (
        {"workload": WORKLOAD.replace("    while True", "    while number < 1")}, r"requests\(\) ends after 1",
    ),
    "no limits": (
        {"check": "from vibeserve.contract import Distance\n\nLIMITS = ()\n\n\ndef compare(*_):\n"
                  "    return [Distance(name='error', values=(0.0,))]\n"},
        r"check\.py: no limits: nothing would ever be refused",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), BROKEN.values(), ids=BROKEN.keys())
def test_files_that_break_their_contract(tmp_path: Path, changes: dict[str, str], expected: str) -> None:
    with pytest.raises(ContractError, match=expected):
        tried(tmp_path, **changes)


def test_a_reference_runs_no_request_twice() -> None:
    class Counting:
        runs = 0

        def run(self, request: Request) -> int:
            self.runs += 1
            return self.runs

    counting = Counting()
    remembered = Remembered(counting)  # type: ignore[arg-type]
    first, second = Request(request_id="a", payload=1), Request(request_id="b", payload=1)
    assert [remembered.run(each) for each in (first, second, first)] == [1, 2, 1]
    assert remembered.runs == 2


def text_ref(model_dir: Path) -> BundleRef:
    workload = Workload(
        kind="chat", prompt_tokens_min=24, prompt_tokens_max=40, output_tokens_min=12, output_tokens_max=16
    )
    context = Context(
        model_dir=str(model_dir), target_dir="", workload=to_data(workload), tolerances=to_data(Tolerances())
    )
    package = "vibeserve.modalities.text"
    return BundleRef(
        reference=f"module:{package}.reference", workload=f"module:{package}.workload",
        check=f"module:{package}.check", faults=f"module:{package}.faults", context=context, probes=package,
    )  # fmt: skip


def test_texts_own_faults_are_as_declared(tiny_model_dir: Path, tmp_path: Path) -> None:
    results = {result.name: result for result in try_faults(text_ref(tiny_model_dir), num_threads=1, run_dir=tmp_path)}
    assert {name for name, result in results.items() if result.is_wrong} == {
        "output_of_another_request", "another_prompts_text", "one_token_in_eight_replaced", "repeated_token",
        "text_that_no_model_wrote", "invented_logprobs",
    }  # fmt: skip
    assert [name for name, result in results.items() if not result.is_as_declared] == []
    assert results["bfloat16"].figures["logprob_mean"] > results["reference_output"].figures["logprob_mean"]
    assert {reason.split(":")[0] for reason in results["invented_logprobs"].reasons} == {"accuracy/wrong_logprobs"}


def test_references_are_loaded_when_they_are_asked_for(tmp_path: Path) -> None:
    from vibeserve.modalities import open_bundle

    bundle = open_bundle(numbers_ref(write_target(tmp_path / "numbers")))
    references = LoadedReferences(bundle, device="cpu", dtype="float32")
    request = Request(request_id="a", payload=[2, 4])
    assert references.exact().run(request) == [2.0, 1.0]
    assert references.rounded().run(request) == [4 * 0.5001, 2 * 0.5001]
    assert references.exact() is references.exact()
