"""Refused target files: YAML, encodings, sizes, keys, types, units, values."""

from __future__ import annotations

from error_case import FOLDER, GOOD, LINK, Case, body, target

RELATIVE = "min_ratio: 1.1, against: competent"
UNITS = """\
budget: {wall_s: 10m, usd: 5 EUR}
hardware: {memory_gib: 24GB, bandwidth_gb_s: 1TB/s, usd_per_hour: $2}
model: {max_context_tokens: 32k}
workload: {slo: {ttft_s: 300ms}}
"""
ALIASES = "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 9)}]\n" for n in range(9))
"""nine times nine times ... values"""
LOADS = "".join(f"    c{n}: {{concurrency: {n}}}\n" for n in range(1, 1001))
TRACE = body("workload: {kind: trace, trace: t.jsonl, loads: {c4: {concurrency: 4}}}\n")
FOLDER_SOURCE = body("model: {source: {kind: folder, path: weights}}\n")
TYPES = """\
budget: {rounds: many, usd: [1]}
out_dir: [x]
require_goal: maybe
workload: {loads: 3}
"""
CIRCLE = "search: {patience: '${budget.rounds}'}\nbudget: {rounds: '${search.patience}'}\n"
SEVERAL = "search: {patiense: 1}\nbudget:\n  usd: x\n  tokens: 1.5\nout_dir: ${oc.env:X}\n"
NEGATIVE = "budget: {rounds: -1}\nworkload: {loads: {c4: {concurrency: -4}}}\n"

CASES = (
    Case(id="tab", files=body("budget:\n\trounds: 1\n")),
    Case(id="unclosed", files=body("budget: {rounds: 1\n")),
    Case(id="wrong indentation", files=body("budget:\n   rounds: 1\n  usd: 1\n")),
    Case(id="duplicate key", files=body("budget: {rounds: 1}\nsearch: {seed: 1}\nbudget: {usd: 1}\n")),
    Case(id="duplicate key below", files=body("budget:\n  rounds: 1\n  rounds: 2\n")),
    Case(id="alias of itself", files=body("budget: &b {rounds: *b}\n")),
    Case(id="unknown alias", files=body("budget: *b\n")),
    Case(id="merge key", files=body("budget: &b {rounds: 1}\nsearch: {<<: *b}\n")),
    Case(id="many aliases", files=body(ALIASES)),
    Case(id="two documents", files=body("---\nbudget: {rounds: 1}\n")),
    Case(id="list at the top", files=target("- model\n- hardware\n")),
    Case(id="text at the top", files=target("tiny_llama\n")),
    Case(id="empty file", files=target("# to be written\n")),
    Case(id="tag", files=body("budget: !!python/object:os.system {rounds: 1}\n")),
    Case(id="path tag", files=body("out_dir: !!python/object/apply:pathlib.Path [x]\n")),
    Case(id="number as key", files=body("workload: {loads: {8: {concurrency: 8}}}\n")),
    Case(id="bool as key", files=body("model: {source: {config: {on: 1}}}\n")),
    Case(id="list as key", files=body("? [a, b]\n: 1\n")),
    Case(id="latin-1", files=target("target: {description: gr\xfcn}\n".encode("latin-1"))),
    Case(id="utf-16", files=target(GOOD.encode("utf-16"))),
    Case(id="nul", files=target(GOOD.encode() + b"out_dir: a\x00b\n")),
    Case(id="10 MB", files=target(GOOD + "# " + "x" * 10_000_000)),
    Case(id="nested 10,000 deep", files=body("model: " + "[" * 10_000)),
    Case(id="nested 33 deep", files=body("model: " + "{a: " * 33 + "1" + "}" * 33)),
    Case(id="nan", files=body("budget: {wall_s: .nan}\n")),
    Case(id="inf", files=body("budget: {wall_s: .inf}\n")),
    Case(id="1e999", files=body("budget: {wall_s: 1e999}\n")),
    Case(id="5001 digits", files=body("budget: {rounds: 1" + "0" * 5000 + "}\n")),
    Case(id="1e12 layers", files=body("model: {num_layers: 1000000000000}\n")),
    Case(id="1e12 layers as a float", files=body("model: {num_layers: 1e12}\n")),
    Case(id="negative", files=body(NEGATIVE)),
    Case(id="1000 loads", files=body("workload:\n  loads:\n" + LOADS)),
    Case(id="unknown key", files=body("budget: {round: 3}\nbudgets: {rounds: 3}\n")),
    Case(id="unknown key without a near one", files=body("qqq: 3\n")),
    Case(id="unknown key in a list", files=target(GOOD.replace("min_ratio", "min_ration"))),
    Case(id="filled by the loader", files=body("target: {name: x, dir: /etc, inherited_dirs: [/]}\n")),
    Case(id="group as a value", files=body("model: tiny_llama\n")),
    Case(id="empty group", files=body("budget:\n")),
    Case(id="empty value", files=body("budget:\n  rounds:\n")),
    Case(id="wrong types", files=body(TYPES)),
    Case(id="number for text", files=body("baseline: {transformers: {version: 4.10}}\nmodel: {revision: 123}\n")),
    Case(id="3.0 rounds", files=body("budget: {rounds: 3.0}\n")),
    Case(id="true rounds", files=body("budget: {rounds: yes}\n")),
    Case(id="long value", files=body("budget: {rounds: " + "x" * 500 + "}\n")),
    Case(id="enum", files=body("budget: {level: fast}\nsandbox: {tier: AA}\n")),
    Case(id="enum that YAML reads as no", files=body("evaluation: {profile: off}\n")),
    Case(id="units", files=target(GOOD.replace(RELATIVE, "max_ms: 0.3s") + UNITS)),
    Case(id="unit not known", files=body("budget: {wall_s: soon}\n")),
    Case(id="environment", files=body("budget: {rounds: '${oc.env:ROUNDS}'}\n")),
    Case(id="environment inside text", files=body("out_dir: out/${oc.env:USER}\n")),
    Case(id="resolver", files=body("out_dir: out/${now:%Y}\n")),
    Case(id="hydra resolver", files=body("out_dir: ${hydra:runtime.cwd}\n")),
    Case(id="interpolation of no key", files=body("search: {patience: '${budget.round}'}\n")),
    Case(id="interpolation of a group's key", files=body("search: {patience: '${budget.rounds.x}'}\n")),
    Case(id="broken interpolation", files=body("search: {patience: '${budget.rounds'}\n")),
    Case(id="nested interpolation", files=body("out_dir: ${${search.policy}}\n")),
    Case(id="interpolation of itself", files=body("search: {patience: '${search.patience}'}\n")),
    Case(id="interpolations in a circle", files=body(CIRCLE)),
    Case(id="interpolation of another type", files=body("search: {patience: '${model.id}'}\n")),
    Case(id="interpolation relative", files=body("search: {patience: '${.nothing}'}\n")),
    Case(id="several faults", files=body(SEVERAL), argv=("plan", "t", "budget.round=1", "model=nope")),
    Case(id="dangling link", files=target(LINK + "gone.yaml")),
    Case(id="link to itself", files=target(LINK + "t.yaml")),
    Case(id="unreadable", files=target(LINK + "/proc/self/mem")),
    Case(id="folder named t.yaml", files=target(FOLDER)),
    Case(id="device", files=target(LINK + "/dev/null")),
    Case(id="yml", files={"targets/t.yml": GOOD}),
    Case(id="file and folder", files={"targets/t.yaml": GOOD, "targets/t/target.yaml": GOOD}),
    Case(id="name with a space", files={"targets/my target.yaml": GOOD}, argv=("plan", "my target")),
    Case(id="missing folder of weights", files=FOLDER_SOURCE),
    Case(id="file as folder of weights", files={**FOLDER_SOURCE, "targets/weights": "x"}),
    Case(id="missing trace", files=TRACE),
    Case(id="bad trace", files={**TRACE, "targets/t.jsonl": "{}\nx\n"}),
)
