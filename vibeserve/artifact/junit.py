"""JUnit XML of a verification, for a user's CI: a test case per check.

Attributes and order are those that Ant's schema and Jenkins' (`junit-10.xsd` of its xunit plug-in) both accept.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from vibeserve.artifact.checks import Check, CheckState, checks_of
from vibeserve.errors import VibeServeError

if TYPE_CHECKING:
    from vibeserve.artifact.verification import Verification

SUITE = "vibeserve verify"
CLASS = "vibeserve.verify"
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""what XML 1.0 cannot hold (section 2.2), escaped or not; a server's log may"""


def junit_text(done: Verification, *, seconds: float = 0.0) -> str:
    """The whole answer; its verdict line is the suite's output."""
    facts = {
        "target": done.manifest.target if done.manifest else "", "level": done.level, "status": done.status,
        "plan_id": done.manifest.plan_id if done.manifest else "", "signature": done.signature.text,
        "exit_code": str(done.exit_code),
    }  # fmt: skip
    return _document([_case(check) for check in checks_of(done)], facts=facts, output=done.line, seconds=seconds)


def error_junit(error: VibeServeError) -> str:
    """One test case that could not be judged: an error, which is no failure."""
    case = ElementTree.Element("testcase", classname=CLASS, name="verify", time="0")
    message = _printable(str(error))
    ElementTree.SubElement(
        case, "error", message=message.splitlines()[0], type=type(error).__name__
    ).text = message  # fmt: skip
    return _document([case], facts={"exit_code": str(error.exit_code)}, output=message, seconds=0.0)


def _document(cases: Sequence[ElementTree.Element], *, facts: dict[str, str], output: str, seconds: float) -> str:
    suite = ElementTree.Element(
        "testsuite", name=SUITE, tests=str(len(cases)), failures=_count(cases, "failure"),
        errors=_count(cases, "error"), skipped=_count(cases, "skipped"), time=f"{seconds:.3f}",
        timestamp=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S"), hostname="localhost",
    )  # fmt: skip
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in facts.items():
        ElementTree.SubElement(properties, "property", name=name, value=value)
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = _printable(output)
    ElementTree.SubElement(suite, "system-err").text = ""
    ElementTree.indent(suite)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(suite, encoding="unicode") + "\n"


def _case(check: Check) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"{CLASS}.{check.level}", name=check.name, time="0")
    if check.state is CheckState.FAILED:
        kinds = ", ".join(dict.fromkeys(reason.reason_class for reason in check.reasons))
        failure = ElementTree.SubElement(case, "failure", message=_printable(check.reasons[0].text), type=kinds)
        failure.text = _printable("\n".join(reason.feedback for reason in check.reasons))
    elif check.state is CheckState.SKIPPED:
        ElementTree.SubElement(case, "skipped", message=_printable(check.note))
    return case


def _count(cases: Sequence[ElementTree.Element], tag: str) -> str:
    return str(sum(case.find(tag) is not None for case in cases))


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("\ufffd", text)
