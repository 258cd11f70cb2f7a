"""What may be declared and does not run in this version yet. One table, for `list`, `plan` and the run."""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.spec import Modality, SourceKind, Spec

RUNNABLE: dict[str, str] = {
    "chat": "",
    "shared_prefix": "",
    "trace": "",
    "code_edit": "",
    "constrained_json": "",
    "streaming_asr": "",
    "text_to_image": "",
}
"""built-in kind of workload -> why it does not run yet; empty = it runs"""

FROM_HUB = {
    "flow": "body, flow head, VAE and tokenizer lie in several repositories",
    "tokens": "no published checkpoint has been read",
}
"""image_head.kind -> why"""

WHAT_RUNS = "chat, shared_prefix, trace, code_edit, constrained_json, streaming_asr, text_to_image"


def not_yet(spec: Spec) -> list[str]:
    """One line for everything in `spec` that may be declared but does not run in this version, whatever the machine."""
    # what a target's folder brings is no kind of ours
    workload = [] if spec.model.modality is Modality.custom else list(_workload(spec))
    return [*workload, *_model(spec), *_image(spec)]


def _workload(spec: Spec) -> Iterator[str]:
    workload = spec.workload
    why_not = RUNNABLE.get(workload.kind, "")
    if why_not:
        yield f"workload.kind: '{workload.kind}' does not run yet: {why_not}; what runs: {WHAT_RUNS}"


def _model(spec: Spec) -> Iterator[str]:
    if spec.model.source.kind is SourceKind.hub and not spec.model.revision:
        yield (
            f"model.revision: '{spec.model.id}' needs model.revision before it can be fetched: "
            "the 40 hex digits of a commit of its hub repository"
        )


def _image(spec: Spec) -> Iterator[str]:
    """Models that draw run from seeded weights or a folder."""
    model = spec.model
    if model.modality is Modality.image and model.source.kind is SourceKind.hub:
        why = FROM_HUB.get(model.image_head.kind, "how it draws is not declared")
        yield (
            f"model.source.kind: '{model.id}' cannot be fetched from the hub yet: {why}; what runs: seeded, or a "
            "folder in the layout of docs/image.md"
        )
