"""Rules of `contract` and of `evaluation.tolerances.limits`, which a target with files of its own declares."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.modalities import target_folder
from vibeserve.modalities.limits import override_problems
from vibeserve.spec import Spec


def contract_problems(spec: Spec) -> Iterator[str]:
    """One line for every rule that is broken."""
    argvs = {"reference_argv": spec.contract.reference_argv, "check_argv": spec.contract.check_argv}
    for name, argv in argvs.items():
        if argv and target_folder(spec) is None:
            yield f"contract.{name}: the target is a single file; a program lies beside targets/NAME/target.yaml"
    limits = spec.evaluation.tolerances.limits
    if spec.contract.check_argv and not limits:
        need = "add evaluation.tolerances.limits, such as error/max: 0.01"
        yield f"contract.check_argv: a program brings no limits; {need}"
    if spec.contract.timeout_s <= 0:
        yield f"contract.timeout_s: {spec.contract.timeout_s:g} is not above 0"
    for key, bound in limits.items():
        yield from override_problems(key, bound)
