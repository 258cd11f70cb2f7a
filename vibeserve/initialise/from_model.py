"""`vibeserve init NAME --from ...` and `--template custom`: a target folder, proved before it stands in its place."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.core.documents import write_text_atomic
from vibeserve.core.paths import cache_dir
from vibeserve.initialise import folder_files
from vibeserve.initialise.folder_files import Calibration, provisional
from vibeserve.initialise.inspect_model import ModelKind
from vibeserve.initialise.origin import Origin, resolve_origin, seeded_origin
from vibeserve.initialise.staging import (
    Written,
    refuse_existing,
    refuse_wrong,
    staged_folder,
    write_surroundings,
    written,
)
from vibeserve.spec import Spec

TEMPLATES = ("custom",)
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A folder that is not written yet: its files, and its target.yaml once the limits are known."""

    kind: str
    files: Mapping[str, str]
    yaml: Callable[[Calibration], str]
    notes: tuple[str, ...] = ()


def init_from(name: str, source: str, *, revision: str, root: Path, say: Say, is_calibrated: bool = True) -> Written:
    """Write `targets/NAME/` for the model that `source` names (`origin.FORMS`)."""
    refuse_existing(name, root=root)
    with tempfile.TemporaryDirectory(prefix="vibeserve-init-") as scratch:
        say(f"looking at {source}")
        target_dir = root / "targets" / name
        origin = resolve_origin(source, revision=revision, scratch=Path(scratch), target_dir=target_dir, root=root)
        return _write(name, _draft(name, origin), root=root, say=say, is_calibrated=is_calibrated)


def init_seeded(
    name: str, architecture: str, *, config: Mapping[str, float], root: Path, say: Say, is_calibrated: bool = True
) -> Written:
    """Write `targets/NAME/` for random weights of an architecture."""
    refuse_existing(name, root=root)
    with tempfile.TemporaryDirectory(prefix="vibeserve-init-") as scratch:
        origin = seeded_origin(architecture, config=config, scratch=Path(scratch))
        return _write(name, _draft(name, origin), root=root, say=say, is_calibrated=is_calibrated)


def init_custom(name: str, *, root: Path, say: Say, is_calibrated: bool = True) -> Written:
    """Write `targets/NAME/` for a function of the user's own, as an example that runs."""
    refuse_existing(name, root=root)
    return _write(name, _custom_draft(name), root=root, say=say, is_calibrated=is_calibrated)


def _draft(name: str, origin: Origin) -> Draft:
    facts = origin.facts
    is_text = facts.kind is ModelKind.causal_lm
    if facts.embedding is not None:
        files = folder_files.embedding_files(facts.embedding, class_name=facts.class_name)
    else:
        files = folder_files.causal_files()

    def yaml(calibration: Calibration) -> str:
        return folder_files.target_yaml(
            name,
            description=f"{origin.model_id} on this machine's CPU",
            model=folder_files.model_section(origin, num_parameters=calibration.num_parameters),
            source=folder_files.source_section(origin), files=files, calibration=calibration,
            headline="output_throughput" if is_text else "embeddings_per_s", engines="transformers",
            workload_group=folder_files.workload_group(origin) if is_text else "", source_notes=origin.notes,
        )  # fmt: skip

    return Draft(
        kind="causal_lm" if is_text else "embedding", files=files, yaml=yaml, notes=(*origin.notes, *facts.notes)
    )


def _custom_draft(name: str) -> Draft:
    files = folder_files.custom_files()

    def yaml(calibration: Calibration) -> str:
        return folder_files.target_yaml(
            name, description="an example: the share of each letter in a text", files=files,
            model={"id": name, "architecture": "none", "modality": "custom", "dtype": "float32"},
            source={"kind": "folder", "path": "model"}, headline="texts_per_s", calibration=calibration, engines="",
            source_notes=("the folder beside this file that holds the model's files",),
        )  # fmt: skip

    return Draft(kind="custom", files=files, yaml=yaml)


def _write(name: str, draft: Draft, *, root: Path, say: Say, is_calibrated: bool) -> Written:
    with ExitStack() as stack:
        started = {**draft.files, "target.yaml": draft.yaml(provisional(draft.kind))}
        staged = stack.enter_context(staged_folder(name, started, root=root))
        spec = refuse_wrong(staged / "target.yaml", name=f"{name}/", root=root)
        if is_calibrated:
            calibration = _calibrate(spec, staged, kind=draft.kind, say=say)
            write_text_atomic(staged / "target.yaml", draft.yaml(calibration))
            refuse_wrong(staged / "target.yaml", name=f"{name}/", root=root)
        place = root / "targets" / name
        refuse_existing(name, root=root)
        staged.rename(place)
    others, notes = write_surroundings(root)
    if not is_calibrated:
        notes.append("the limits are not calibrated; until they are, nothing can be certified")
    return written(name, [*folder_files.read_places(place), *others], root=root, notes=[*draft.notes, *notes])


def _calibrate(spec: Spec, staged: Path, *, kind: str, say: Say) -> Calibration:
    from vibeserve.initialise.calibrate import calibrate_folder, calibrate_text
    from vibeserve.weights import materialise

    say("fetching or making the model's files")
    model = materialise(spec.model, cache=cache_dir(), target_dir=staged)
    say("calibrating the limits: the reference, every fault, and the same model in bfloat16")
    calibrate = calibrate_text if kind == "causal_lm" else calibrate_folder
    with tempfile.TemporaryDirectory(prefix="vibeserve-calibrate-") as run_dir:
        found = calibrate(spec, model_dir=model.path, run_dir=Path(run_dir))
    return replace(found, num_parameters=model.num_parameters)
