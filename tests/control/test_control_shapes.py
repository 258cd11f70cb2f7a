"""What a request may hold: every wrong one is told what is valid."""

from __future__ import annotations

from typing import Any

import pytest
from steering_rig import DOCUMENT

from vibeserve.control import shape_problem, told
from vibeserve.control.shapes import FIXED, FIXED_KEYS, SHAPES
from vibeserve.spec import Spec

RIGHT: dict[str, dict[str, Any]] = {
    "pause": {"why": "lunch"},
    "resume": {},
    "stop": {},
    "constrain": {"ban": ["paged-kv"], "only": {"max_num_seqs": [8, 16]}, "lift": []},
    "veto": {"item": "b3"},
    "pin": {"values": {"max_num_seqs": 8}},
    "propose": {"proposal": DOCUMENT},
    "budget": {"rounds": 8, "wall_s": 3600.0, "tokens": 100, "usd": 2.5},
    "backend": {"roles": {"planner": {"backend": "openai", "model": "m"}}},
    "backlog": {"action": "add", "title": "an idea"},
    "note": {"action": "edit", "note": "n1", "text": "another"},
}


def test_every_command_has_a_right_form() -> None:
    assert {command: shape_problem(command, RIGHT[command]) for command in SHAPES} == dict.fromkeys(SHAPES, "")


@pytest.mark.parametrize(
    ("command", "arguments", "problem"),
    [
        ("restart", {}, "there is no command 'restart'; valid: pause, resume, stop, constrain, veto, pin, propose"),
        ("pause", {"until": "noon"}, "pause does not know 'until'; it takes nothing more"),
        ("constrain", {}, "it asks for nothing; valid: ban, only, lift"),
        ("constrain", {"ban": [], "why": "x"}, "it asks for nothing; valid: ban, only, lift"),
        ("constrain", {"only": {"block": []}}, "constrain only.block: names nothing"),
        ("constrain", {"ban": "paged-kv"}, "constrain ban: expected a list, got 'paged-kv'"),
        ("veto", {}, "veto needs item"),
        ("pin", {}, "it asks for nothing; valid: values, lift"),
        ("pin", {"values": {"block": [8]}}, "pin values.block: expected a number or text or true or false, got [8]"),
        ("propose", {"proposal": {"title": "x"}}, "'hypothesis' is a required property"),
        ("propose", {"proposal": {**DOCUMENT, "forecast_ratio": 0}}, "proposal.forecast_ratio: 0 is less than"),
        ("budget", {}, "it asks for nothing; valid: rounds, wall_s, tokens, usd"),
        ("budget", {"rounds": 2.5}, "budget rounds: expected a whole number, got 2.5"),
        ("budget", {"usd": -1}, "budget usd: -1 is below 0"),
        ("budget", {"attempts": 9}, "budget does not know 'attempts'; valid: rounds, wall_s, tokens, usd"),
        ("backend", {"roles": {"chef": {"backend": "openai"}}}, "backend roles: 'chef' is not valid; valid: planner"),
        ("backend", {"roles": {"judge": {"backend": "codex", "size": "x"}}}, "judge does not know 'size'; valid: "),
        ("backend", {"roles": {"judge": {"backend": "replay"}}}, "'replay' is not valid; valid: playbook, openai"),
        ("backend", {"roles": {"judge": {"model": "m"}}}, "backend roles.judge needs backend"),
        ("backend", {"roles": {}}, "backend roles: names nothing"),
        ("backlog", {"action": "add", "title": " "}, "backlog add needs title"),
        ("backlog", {"action": "abandon", "item": "b1"}, "backlog abandon needs why"),
        ("backlog", {"action": "park"}, "backlog park needs item"),
        ("note", {"action": "edit", "note": "n1"}, "note edit needs text"),
        ("note", {"action": "add", "text": "x" * 501}, "text has 501 characters, at most 500"),
    ],
)
def test_a_wrong_one_says_what_is_valid(command: str, arguments: dict[str, Any], problem: str) -> None:
    assert problem in shape_problem(command, arguments)


@pytest.mark.parametrize("group", FIXED)
@pytest.mark.parametrize(
    ("command", "form"),
    [
        ("budget", lambda name: {name: 0}),
        ("pin", lambda name: {"values": {name: 0}}),
        ("constrain", lambda name: {"only": {name: [0]}}),
        ("backend", lambda name: {"roles": {name: {"backend": "playbook"}}}),
        ("pause", lambda name: {name: 0}),
    ],
)
def test_what_is_claimed_and_how_it_is_judged_is_a_new_plan(command: str, form: Any, group: str) -> None:
    name = f"{group}.min_effect"
    assert shape_problem(command, form(name)) == f"{name}: that is a new plan"
    assert shape_problem(command, form(group)) == f"{group}: that is a new plan"


@pytest.mark.parametrize("key", FIXED_KEYS)
def test_how_much_is_certified_is_a_new_plan(key: str) -> None:
    assert shape_problem("budget", {key: "quick"}) == f"{key}: that is a new plan"


def test_every_group_of_the_spec_is_steered_or_fixed() -> None:
    steered = {"budget", "agents", "search", "skills"}
    told_apart = {"require_goal", "out_dir"}
    """neither changes what is measured or claimed"""
    assert set(vars(Spec())) == set(FIXED) | steered | told_apart


def test_a_request_in_words() -> None:
    assert [told(command, RIGHT[command]) for command in SHAPES] == [
        "pause", "resume", "stop", "constrain ban paged-kv max_num_seqs only 8,16", "veto b3", "pin max_num_seqs=8",
        "propose adopt third at once", "budget rounds=8 wall_s=3600 tokens=100 usd=2.5", "backend planner=openai,m",
        "backlog add an idea", "note edit n1 another",
    ]  # fmt: skip
