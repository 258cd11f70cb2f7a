"""JUnit XML of a verification, for a user's CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from vibeserve.core.documents import write_text_atomic
from vibeserve.core.nouns import Refusal

if TYPE_CHECKING:
    from vibeserve.artifact.verify import Verification

_LEVELS = ("bytes", "accuracy", "performance")
_GATE_LEVELS = {"integrity": "bytes", "performance": "performance"}


def write_junit(path: Path, done: Verification) -> None:
    """One test case per level: failed with its reasons, skipped when it was not run, else passed."""
    write_text_atomic(path, junit_text(done))


def junit_text(done: Verification) -> str:
    by_level: dict[str, list[Refusal]] = {level: [] for level in _LEVELS}
    manifest_reasons = done.manifest.reasons if done.manifest else ()
    for reason in done.reasons or manifest_reasons:
        by_level[_GATE_LEVELS.get(reason.gate, "accuracy")].append(reason)
    num_run = _LEVELS.index("performance" if done.level == "full" else done.level) + 1
    cases = [_case(level, by_level[level], is_run=index < num_run) for index, level in enumerate(_LEVELS)]
    num_failures = sum(case.find("failure") is not None for case in cases)
    num_skipped = sum(case.find("skipped") is not None for case in cases)
    suite = ElementTree.Element(
        "testsuite",
        name="vibeserve verify",
        tests=str(len(cases)),
        failures=str(num_failures),
        skipped=str(num_skipped),
    )
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = done.line
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case(level: str, reasons: Sequence[Refusal], *, is_run: bool) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="vibeserve.verify", name=level)
    if reasons:
        kinds = ", ".join(dict.fromkeys(reason.reason_class for reason in reasons))
        failure = ElementTree.SubElement(case, "failure", message=reasons[0].text, type=kinds)
        failure.text = "\n".join(reason.feedback for reason in reasons)
    elif not is_run:
        ElementTree.SubElement(case, "skipped", message=f"level {level} was not run")
    return case
