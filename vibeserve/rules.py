"""By whose rules an artifact is judged again: none that are milder than the framework's, or the verifier's own.

An artifact may carry its target's own files. They decide what is asked and what is right, they may be the runtime that
a claim is against, and some run as the verifier, outside the wall. So they are used only where somebody vouches for
them: they are the ones of the verifier's own target folder, or `--expect` names the digest that the artifact's origin
published (`docs/contract.md`).
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from vibeserve.config import compose_spec
from vibeserve.config.targets import list_targets
from vibeserve.contract import Limit
from vibeserve.core.manifest import Manifest
from vibeserve.core.nouns import Refusal
from vibeserve.errors import RefusedError, SpecError
from vibeserve.modalities import bundle_ref, contract_files, open_bundle, target_folders
from vibeserve.modalities.copies import copy_contract, tree_differences, with_contract
from vibeserve.modalities.limits import milder, with_overrides
from vibeserve.modalities.sources import TARGET_FILE
from vibeserve.spec import SourceKind, Spec, Tolerances

MAX_FILES = 5


def take_contract(spec: Spec, *, contract: Path | None, is_vouched: bool, destination: Path) -> Spec:
    """The artifact's spec with a copy of its contract files in `destination`, or without any.

    Raises RefusedError for files that nobody vouches for, or that are not those of the verifier's own target.
    """
    packaged = contract if contract is not None and contract.is_dir() else None
    if packaged is None:
        # a folder that lies here is not what was certified
        return with_contract(spec, None) if target_folders(spec) else spec
    shutil.copytree(packaged, destination)
    taken = with_contract(spec, destination)
    if contract_files(taken):
        _refuse_unvouched(spec, packaged, is_vouched=is_vouched)
    if spec.model.source.kind is SourceKind.folder:
        _link_weights(spec, destination)
    return taken


def own_target(name: str) -> Spec | None:
    """The verifier's own target of that name, as it is declared where the command runs; None where there is none."""
    known = [target for target in list_targets() if target.name == name and not target.fault]
    return compose_spec([f"+target={name}"]) if known else None


def _refuse_unvouched(spec: Spec, packaged: Path, *, is_vouched: bool) -> None:
    own = own_target(spec.target.name)
    if own is None or not target_folders(own):
        if not is_vouched:
            text = f"nobody vouches for contract/, which holds rules of the target's own ({_listed(packaged)})"
            hint = "verify it where your own targets/ hold the target, or name its origin's digest by --expect"
            reason = Refusal(gate="spec", reason_class="unvouched_contract", text=f"{text}; {hint}", file="contract/")
            raise RefusedError(f"{text}\nnext: {hint}", reasons=[reason])
        return
    with tempfile.TemporaryDirectory() as folder:
        ours = Path(folder) / "contract"
        copy_contract(own, ours)
        names = [name for name in tree_differences(ours, packaged) if Path(name).name != TARGET_FILE]
    if names:
        text = f"{', '.join(names[:MAX_FILES])} of contract/ differ from your own target '{spec.target.name}'"
        raise _own_rules([text], file=f"contract/{names[0]}")


def refuse_own_rules(spec: Spec, *, manifest: Manifest, plan_id: str) -> None:
    """RefusedError where the artifact's spec is not the one of its manifest, or judges more mildly than it may.

    `plan_id` is what this framework compiles the spec to, empty where that cannot be compared. A check of the target's
    own is held against the tolerances of the verifier's own target; a built-in one against the framework's.
    """
    base = _base_tolerances(spec)
    check_limits = _declared_limits(spec, base)
    texts = [
        f"evaluation.tolerances: {text}"
        for text in loosened(spec.evaluation.tolerances, than=base, check_limits=check_limits)
    ]
    if spec.target.name != manifest.target:
        texts.append(f"spec.yaml is of target '{spec.target.name}', manifest.json of '{manifest.target}'")
    if plan_id and plan_id != manifest.plan_id:
        texts.append(f"spec.yaml compiles to plan {plan_id}, manifest.json claims {manifest.plan_id}")
    if texts:
        raise _own_rules(texts, file="spec.yaml")


def loosened(
    tolerances: Tolerances, *, than: Tolerances | None = None, check_limits: Sequence[Limit] = ()
) -> list[str]:
    """Every tolerance that is milder than in `than` (empty = the framework's defaults). NaN is milder than anything.

    `limits` are bounds from above, over the check's own LIMITS: a larger one is milder, and so is one that is gone.
    """
    base = than or Tolerances()
    found = []
    for each in fields(Tolerances):
        value, limit = getattr(tolerances, each.name), getattr(base, each.name)
        if each.name == "limits":
            continue
        is_milder = value < limit if each.name.endswith("_min") else value > limit
        if each.name == "logprob_share":
            is_milder = value <= 0 or value > limit
        if is_milder or value != value:
            found.append(f"{each.name} is {value}, milder than {limit}")
    try:
        limits = with_overrides(check_limits, tolerances.limits)
    except SpecError as error:
        return [*found, *error.problems]
    return [*found, *milder(limits, than=with_overrides(check_limits, base.limits))]


def _base_tolerances(spec: Spec) -> Tolerances:
    if not _has_own_check(spec):
        return Tolerances()
    own = own_target(spec.target.name)
    # without a target of the verifier's own, --expect vouches for the spec as well
    return own.evaluation.tolerances if own is not None else spec.evaluation.tolerances


def _has_own_check(spec: Spec) -> bool:
    return not bundle_ref(spec).check.startswith("module:")


def _declared_limits(spec: Spec, base: Tolerances) -> tuple[Limit, ...]:
    """LIMITS of the check as `base` configures it."""
    plain = replace(spec, evaluation=replace(spec.evaluation, tolerances=base))
    return tuple(open_bundle(bundle_ref(plain)).check.LIMITS)


def _link_weights(spec: Spec, destination: Path) -> None:
    """The folder of a local model, which no artifact carries, where the copied target expects it."""
    path = Path(spec.model.source.path)
    origins = [each for each in (own_target(spec.target.name), spec) if each is not None]
    starts = [start for each in origins if (start := each.target.folder_of(spec.model.source.path)) is not None]
    found = next((start / path for start in starts if (start / path).is_dir()), None)
    link = destination / path
    if not path.is_absolute() and found is not None and not link.exists():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(found.resolve(), target_is_directory=True)


def _listed(packaged: Path) -> str:
    names = sorted(path.relative_to(packaged).as_posix() for path in packaged.rglob("*.*") if path.is_file())
    shown = [name for name in names if Path(name).name != TARGET_FILE]
    return ", ".join(shown[:MAX_FILES]) + (" ..." if len(shown) > MAX_FILES else "")


def _own_rules(texts: Sequence[str], *, file: str) -> RefusedError:
    reasons = [Refusal(gate="spec", reason_class="own_rules", text=text, file=file) for text in texts]
    return RefusedError("the artifact is judged by rules of its own\n  " + "\n  ".join(texts), reasons=reasons)
