"""Refused command lines of the other verbs, of sweeps, and what only a plan can refuse."""

from __future__ import annotations

from error_case import Case, body, target


def plan(id: str, *overrides: str) -> Case:
    return Case(id=f"plan: {id}", files=body(""), argv=("plan", "t", *overrides))


PART: dict[str, str | bytes] = {"targets/_p.yaml": "seed: {}\n"}

CASES = (
    Case(id="check nothing", argv=("check",)),
    Case(id="check all and one", argv=("check", "--all", "tiny_cpu")),
    Case(id="check an absent file", argv=("check", "./absent.yaml")),
    Case(id="check an unknown target", argv=("check", "tiny_cp")),
    Case(id="plan with a key without its value", argv=("plan", "t", "budget.rounds"), files=body("")),
    Case(id="check a part deeply", argv=("check", "targets/_p.yaml", "--deep"), files=PART),
    Case(id="list something", argv=("list", "tiny_cpu")),
    Case(id="schema unknown", argv=("schema", "targte")),
    Case(id="schema without a near one", argv=("schema", "qqqq")),
    Case(id="schema into no folder", argv=("schema", "target", "--output", "absent/s.json")),
    Case(id="schema into a folder", argv=("schema", "target", "--output", "targets"), files=body("")),
    Case(id="schema into what is no folder", argv=("schema", "spec", "--output", "/proc/s.json")),
    Case(id="schema of nothing", argv=("schema", "--output", "s.json")),
    Case(id="verify nothing", argv=("verify",)),
    Case(id="verify an absent artifact", argv=("verify", "artifacts/none")),
    Case(id="verify what is none", argv=("verify", "targets"), files=body("")),
    Case(id="verify at an unknown level", argv=("verify", "targets", "--level", "acuracy"), files=body("")),
    Case(id="verify with a near option", argv=("verify", "targets", "--expected", "x"), files=body("")),
    Case(id="verify with a share", argv=("verify", "targets", "--max-regression", "5"), files=body("")),
    Case(id="verify against no digest", argv=("verify", "targets", "--expect", "abc"), files=body("")),
    Case(id="verify against a short digest", argv=("verify", "targets", "--expect", "0" * 63), files=body("")),
    Case(id="verify with a report nowhere", argv=("verify", "targets", "--junit", "absent/j.xml"), files=body("")),
    Case(id="verify with a report in a folder", argv=("verify", "targets", "--junit", "targets"), files=body("")),
    Case(id="verify with a summary nowhere", argv=("verify", "targets", "--summary", "absent/s.md"), files=body("")),
    Case(id="verify with nobody's signature", argv=("verify", "targets", "--require-signature"), files=body("")),
    Case(id="verify with absent signers", argv=("verify", "targets", "--allowed-signers", "none"), files=body("")),
    Case(id="verify against nothing known", argv=("verify", "targets", "--against", "baselin"), files=body("")),
    Case(id="sign without a key", argv=("sign", "targets"), files=body("")),
    Case(id="sign with an absent key", argv=("sign", "targets", "--key", "none"), files=body("")),
    Case(id="serve an absent artifact", argv=("serve", "artifacts/none")),
    Case(id="report of an absent artifact", argv=("report", "artifacts/none")),
    Case(id="report into no folder", argv=("report", "artifacts/none", "--output", "absent/r.html")),
    Case(id="compare into no folder", argv=("compare", "a", "b", "--html", "absent/c.html")),
    Case(id="compare one", argv=("compare", "artifacts/none")),
    Case(id="compare in two ways", argv=("compare", "a", "b", "--csv", "--html", "c.html")),
    Case(id="compare absent ones", argv=("compare", "artifacts/none", "artifacts/neither")),
    Case(id="peers without a verb", argv=("peers",)),
    Case(id="peers with an unknown verb", argv=("peers", "instal", "vllm")),
    Case(id="peers list something", argv=("peers", "list", "vllm")),
    Case(id="peers install unknown", argv=("peers", "install", "vlm")),
    Case(id="peers install nothing", argv=("peers", "install")),
    Case(id="init with a wrong name", argv=("init", "my target")),
    Case(id="init with a wrong option", argv=("init", "mine", "--model", "tiny_lama")),
    Case(id="init with a wrong goal", argv=("init", "mine", "--goal", "fast")),
    Case(id="init with a goal against nothing", argv=("init", "mine", "--goal", "output_throughput:2x")),
    Case(id="init what exists", argv=("init", "t"), files=body("")),
    Case(id="init nowhere", argv=("init", "t", "--dir", "absent")),
    Case(id="init into a file", argv=("init", "new", "--dir", "targets/t.yaml"), files=body("")),
    Case(id="sweep with wrong jobs", argv=("-m", "+target=tiny_cpu,tiny_cp", "budget.attempts=0,1")),
    Case(id="sweep with a job that no plan allows", argv=("-m", "+target=tiny_cpu", "hardware.engine_threads=9999")),
    Case(id="sweep without target", argv=("-m", "budget=smoke,small")),
    Case(id="sweep with an unknown launcher", argv=("-m", "+target=tiny_cpu", "hydra/launcher=rai")),
    Case(id="sweep with bad syntax", argv=("-m", "+target=tiny_cpu", "budget.rounds=[1")),
    Case(id="question about a wrong target", argv=("--cfg", "job", "+target=t"), files=target("budgets: 1\n")),
    Case(id="question about an unknown target", argv=("--cfg", "job", "+target=tiny_cp")),
    Case(id="question with a wrong key", argv=("--cfg", "job", "+target=tiny_cpu", "budget.round=1")),
    plan("too many threads", "hardware.engine_threads=9999"),
    plan("cpus that are none", "hardware.engine_cpus=x"),
    plan("cpus that are not here", "hardware.engine_cpus='900-901'"),
    plan("host kind", "host.kind=ssh"),
    plan("modality", "model.modality=speech"),
)
