"""Refused selections and inheritance: the list `defaults`, chains of targets, the repository's own options."""

from __future__ import annotations

from error_case import GOOD, LINK, Case, body, target


def own(text: str) -> dict[str, str | bytes]:
    """A repository with an option of its own in the group `model`."""
    return {"targets/t.yaml": GOOD.replace("tiny_llama", "own"), "conf/model/own.yaml": text}


CASES = (
    Case(id="unknown option", files=target(GOOD.replace("tiny_llama", "tiny_lama"))),
    Case(
        id="unknown option in a list",
        files=target(GOOD.replace("goals:", "  - override /baseline: [required, vlm]\ngoals:")),
    ),
    Case(id="unknown group", files=target(GOOD.replace("override /hardware", "override /hardwear"))),
    Case(id="group without slash", files=target(GOOD.replace("override /hardware", "hardware"))),
    Case(id="group as text", files=target(GOOD.replace("override /hardware: cpu", "override /hardware cpu"))),
    Case(id="group as a path", files=target(GOOD.replace("override /hardware: cpu", "hardware/cpu"))),
    Case(id="optional", files=target(GOOD.replace("override /hardware", "optional /hardware"))),
    Case(id="package", files=target(GOOD.replace("override /hardware", "override /hardware@model"))),
    Case(id="no option", files=target(GOOD.replace(": cpu", ":"))),
    Case(id="mapping as option", files=target(GOOD.replace(": cpu", ": {name: cpu}"))),
    Case(id="two models", files=target(GOOD.replace("tiny_llama", "[tiny_llama, smollm2_135m]"))),
    Case(id="group twice", files=target(GOOD.replace("goals:", "  - /model: smollm2_135m\ngoals:"))),
    Case(
        id="two groups in one entry",
        files=target("defaults:\n  - {override /model: tiny_llama, override /hardware: cpu}\n"),
    ),
    Case(id="defaults is text", files=target("defaults: tiny_cpu\n")),
    Case(id="defaults is a mapping", files=target("defaults: {override /model: tiny_llama}\n")),
    Case(id="list in defaults", files=target("defaults: [[tiny_cpu]]\n")),
    Case(id="empty entry", files=target("defaults:\n  - tiny_cpu\n  -\n")),
    Case(id="nothing selected", files=target("budget: {rounds: 1}\n")),
    Case(id="no hardware selected", files=target(GOOD.replace("  - override /hardware: cpu\n", ""))),
    Case(id="inherits from an unknown target", files=target("defaults: [tiny_cp, _self_]\n")),
    Case(id="inherits from itself", files=target("defaults: [t]\n")),
    Case(
        id="inherits in a circle",
        files={**target("defaults: [a]\n"), "targets/a.yaml": "defaults: [_b]\n", "targets/_b.yaml": "defaults: [t]\n"},
    ),
    Case(
        id="circle further up",
        files={**target("defaults: [a]\n"), "targets/a.yaml": "defaults: [b]\n", "targets/b.yaml": "defaults: [a]\n"},
    ),
    Case(id="inherits by /target", files=target("defaults:\n  - /target: tiny_cpu\n")),
    Case(id="inherits by override /target", files=target("defaults:\n  - override /target: tiny_cpu\n")),
    Case(id="inherits by a path", files=target("defaults:\n  - target/tiny_cpu\n")),
    Case(id="inherits from two", files=target("defaults: [tiny_cpu, smollm2_cpu]\n")),
    Case(id="self before the inherited", files=target("defaults: [_self_, tiny_cpu]\n")),
    Case(id="self twice", files=target("defaults: [_self_, _self_]\n")),
    Case(id="inherits from a number", files={**target("defaults: [1]\n"), "targets/1.yaml": GOOD}),
    Case(
        id="fault of the inherited",
        files={**target("defaults: [a]\nbudget: {round: 1}\n"), "targets/a.yaml": GOOD + "search: {patiense: 2}\n"},
    ),
    Case(id="inherited is no YAML", files={**target("defaults: [a]\n"), "targets/a.yaml": "goals: [\n"}),
    Case(id="inherited is a dangling link", files={**target("defaults: [a]\n"), "targets/a.yaml": LINK + "gone"}),
    Case(
        id="rule broken by the inherited",
        files={
            **target("defaults: [a]\nworkload: {headline_load: c9}\n"),
            "targets/a.yaml": GOOD + "budget: {attempts: 0}\n",
        },
    ),
    Case(id="part as a target", files={"targets/_part.yaml": GOOD}, argv=("plan", "_part")),
    Case(id="own option with an unknown key", files=own("id: own\nlayers: 3\n")),
    Case(id="own option is no YAML", files=own("id: [\n")),
    Case(id="own option is a list", files=own("- id\n")),
    Case(id="own option with a package", files=own("# @package _global_\nid: own\narchitecture: llama\n")),
    Case(id="own option reads the environment", files=own("id: ${oc.env:MODEL}\narchitecture: llama\n")),
    Case(id="own option is not complete", files=own("id: own\n")),
    Case(id="own option breaks a rule", files=own("id: own\narchitecture: llama\nnum_heads: 9\nnum_kv_heads: 2\n")),
    Case(
        id="own option has the name of a shipped one",
        files={**body(""), "conf/model/tiny_llama.yaml": "id: mine\narchitecture: llama\n"},
    ),
    Case(id="own option starts from none", files=own("defaults: [tiny_lama]\n")),
    Case(
        id="own option starts from itself",
        files={**own("defaults: [other]\n"), "conf/model/other.yaml": "defaults: [own]\n"},
    ),
)
