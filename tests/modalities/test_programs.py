"""Evaluators in another language: the same records as JSON lines, and what a program can do wrong."""

from __future__ import annotations

import shutil
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from numbers_target import numbers_spec, write_target

from vibeserve.accuracy import judge_records, refuse_unproven, try_faults
from vibeserve.contract import Pool, Record
from vibeserve.errors import ContractError, SpecError
from vibeserve.modalities import BundleRef, bundle_ref, open_bundle
from vibeserve.spec import Contract, Modality

PERL_CHECK = r"""
use strict;
use warnings;
use JSON::PP;
$| = 1;
my $json = JSON::PP->new->allow_nonref;
while (my $line = <STDIN>) {
    my $asked = $json->decode($line);
    my ($right, $sent) = ($asked->{expected}, $asked->{output});
    my %distance = (name => "error", values => [], unit => "");
    if (@$right != @$sent) {
        $distance{missing} = "another number of numbers";
    } else {
        $distance{values} = [map { abs($right->[$_] - $sent->[$_]) / (abs($right->[$_]) || 1) } 0 .. $#$right];
    }
    print $json->encode({distances => [\%distance]}), "\n";
}
"""
PERL_REFERENCE = r"""
use strict;
use warnings;
use JSON::PP;
$| = 1;
die "no dtype\n" unless ($ARGV[0] // "") =~ /^(float32|bfloat16)$/;
my $scale = $ARGV[0] eq "float32" ? 0.5 : 0.5001;
while (my $line = <STDIN>) {
    my $asked = decode_json($line);
    print encode_json({expected => [map { $_ * $scale } reverse @{$asked->{request}{payload}}]}), "\n";
}
"""
MJS_CHECK = r"""
import { createInterface } from "node:readline";

for await (const line of createInterface({ input: process.stdin })) {
  const { output, expected } = JSON.parse(line);
  const values = expected.map((right, at) => Math.abs(right - output[at]) / (Math.abs(right) || 1));
  console.log(JSON.stringify({ distances: [{ name: "error", values }] }));
}
"""
LIMITS = {"error/max": 0.01}

needs_perl = pytest.mark.skipif(shutil.which("perl") is None, reason="no perl on this machine")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")


def ref(folder: Path, **contract: object) -> BundleRef:
    spec = replace(numbers_spec(folder, limits=LIMITS), contract=Contract(**contract))  # type: ignore[arg-type]
    return bundle_ref(spec, model_dir=folder)


def records(bundle: BundleRef) -> list[Record]:
    requests = islice(open_bundle(bundle).workload.requests(1, Pool.selection), 4)
    return [Record(request=each, output=[value / 2 for value in reversed(each.payload)]) for each in requests]


def classes(bundle: BundleRef, served: list[Record], tmp_path: Path) -> list[str]:
    judged = judge_records(served, bundle=bundle, num_threads=1, max_replies=0, seed=0, run_dir=tmp_path / "run")
    return [refusal.reason_class for refusal in judged.refusals]


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        pytest.param(["perl", "check.pl"], {"check.pl": PERL_CHECK}, marks=needs_perl, id="perl"),
        pytest.param(["node", "check.mjs"], {"check.mjs": MJS_CHECK}, marks=needs_node, id="node"),
    ],
)
def test_a_check_in_another_language_judges_like_one_in_python(
    tmp_path: Path, argv: list[str], files: dict[str, str]
) -> None:
    folder = write_target(tmp_path / "numbers", check="")
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    bundle = ref(folder, check_argv=argv)
    served = records(bundle)
    assert classes(bundle, served, tmp_path) == []
    wrong = replace(served[0], output=[value + 50 for value in served[0].output])
    assert classes(bundle, [wrong, *served[1:]], tmp_path) == ["wrong_error"]
    refuse_unproven(try_faults(bundle, num_threads=1, run_dir=tmp_path / "faults"))


@needs_perl
def test_a_reference_in_another_language_is_told_its_dtype(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers", reference="")
    (folder / "reference.pl").write_text(PERL_REFERENCE, encoding="utf-8")
    bundle = ref(folder, reference_argv=["perl", "reference.pl", "{dtype}"])
    assert classes(bundle, records(bundle), tmp_path) == []
    results = {result.name: result for result in try_faults(bundle, num_threads=1, run_dir=tmp_path / "faults")}
    assert all(result.is_as_declared for result in results.values())
    assert results["rounded"].figures["error_max"] == pytest.approx(2e-4)


def python_program(folder: Path, body: str) -> list[str]:
    text = "import json, sys, time\nfor line in sys.stdin:\n    " + body.replace("\n", "\n    ")
    (folder / "program.py").write_text(text + "\n    sys.stdout.flush()\n", encoding="utf-8")
    return ["{python}", "program.py"]


def answer(values: str, *, more: str = "") -> str:
    """Python that prints one distance with these values."""
    return f"""print('{{"distances": [{{"name": "error", "values": {values}}}]}}{more}')"""


WRONG = {
    "no JSON": ("print('PASS')", "answered a line that is no JSON: PASS"),
    "no object": ("print('[1]')", r"answered \[1\], which is no JSON object"),
    "no distances": ("print('{}')", r'answered \{\}, expected \{"distances":'),
    "a distance without a name": (
        "print('{\"distances\": [{\"values\": [0]}]}')", r'answered .*, expected \{"distances": \[\{"name"',
    ),
    "values that are words": (
        answer('[\"0\"]'), r'answered .*, expected \{"distances":',
    ),
    "values that are truths": (
        answer("[true]"), r'answered .*, expected \{"distances":',
    ),
    "more lines than questions": (
        answer("[0]", more="\\n\\n"), "answered more lines than it was asked",
    ),
    "early end": (
        answer("[0]") + "\nsys.stdout.flush()\n"
        "sys.stderr.write('no more\\n')\nsys.exit(3)",
        r"ended \(exit 3\) before it had answered\n  \| no more",
    ),
    "hang": ("time.sleep(60)", "did not answer within 2 s"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), WRONG.values(), ids=WRONG.keys())
def test_what_a_program_does_wrong_is_a_typed_error(tmp_path: Path, body: str, expected: str) -> None:
    folder = write_target(tmp_path / "numbers", check="")
    bundle = ref(folder, check_argv=python_program(folder, body), timeout_s=2.0)
    with pytest.raises(ContractError, match=rf"contract\.check_argv: \{{python\}} program\.py {expected}"):
        classes(bundle, records(bundle), tmp_path)


def test_null_is_no_number(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers", check="")
    body = 'print(\'{"distances": [{"name": "error", "values": [null]}]}\')'
    bundle = ref(folder, check_argv=python_program(folder, body))
    assert classes(bundle, records(bundle), tmp_path) == ["missing_error"]


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers", reference="")
    bundle = ref(folder, reference_argv=["no-such-program"])
    with pytest.raises(ContractError, match=r"contract\.reference_argv: no-such-program cannot be started: No such"):
        classes(bundle, records(bundle), tmp_path)


def test_a_program_brings_no_limits_so_the_target_must(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers", check="")
    spec = replace(numbers_spec(folder), contract=Contract(check_argv=[sys.executable, "check.pl"]))
    bundle = open_bundle(bundle_ref(spec))
    assert list(bundle.problems()) == [
        "contract.check_argv: no limits: nothing would ever be refused; "
        "valid: LIMITS and judge of check.py, or evaluation.tolerances.limits of the target"
    ]


def test_a_target_without_a_folder_has_no_programs(tmp_path: Path) -> None:
    folder = write_target(tmp_path / "numbers")
    spec = replace(numbers_spec(folder), contract=Contract(check_argv=["perl", "check.pl"]))
    (folder / "target.yaml").unlink()
    with pytest.raises(SpecError, match=r"contract\.check_argv: no folder to run it in"):
        bundle_ref(replace(spec, model=replace(spec.model, modality=Modality.text)))
