"""What cannot be done on a machine behind ssh: refused when it is declared, not in the middle of a run."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.spec import Level, Spec

OF_THE_INTERPRETER = ("scaffold", "transformers", "transformers_cb")
"""baselines that run in the interpreter which serves the runtimes"""
OWN_ENVIRONMENT = ("vllm", "llama_cpp")
NO_CHOICE = ("scaffold",)
"""of those, the ones that have no dtype to choose"""


def host_problems(spec: Spec) -> Iterator[str]:
    """One line for every rule that `spec` breaks, each starting with the key."""
    if spec.host.kind != "ssh":
        return
    if not spec.host.address:
        yield "host.address: a host of kind ssh needs one, such as user@machine"
        return
    if spec.budget.level is Level.full:
        why = "full's soak reads the servers' processes, which a host of kind ssh does not show"
        yield f"budget.level: {why}; valid: quick, standard"
    for name, declared in spec.baseline.items():
        if name in OWN_ENVIRONMENT:
            yield f"baseline.{name}: has an environment of its own, which a host of kind ssh has not; leave it out"
        elif name in OF_THE_INTERPRETER and name not in NO_CHOICE and len(declared.dtypes) != 1:
            yield f"baseline.{name}.dtypes: nothing is calibrated on a host of kind ssh; state one, such as [bf16]"
