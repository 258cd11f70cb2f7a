"""The files of a target folder, rendered from a model's facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.core.documents import to_data
from vibeserve.core.paths import data_dir
from vibeserve.initialise.inspect_model import Embedding, ModelFacts, ModelKind
from vibeserve.initialise.origin import Origin
from vibeserve.initialise.render import render
from vibeserve.initialise.staging import SCHEMA_FILE
from vibeserve.spec import LinearState, SourceKind

LONG_PROMPTS_TOKENS = 1024
"""models with less context, and random ones, are asked with short prompts"""

PROVISIONAL_BOUND = 1e9
"""stands for a limit until it is calibrated"""

FILE_NOTES = {
    "reference.py": "what is right",
    "workload.py": "what is asked and what is measured",
    "check.py": "how far a reply may be off",
    "faults.py": "wrong replies that must be refused",
    "scaffold/": "the runtime that round 0 starts from, laid over the stock one",
}
DISTANCES = {"embedding": ("cosine_distance", "abs_error"), "custom": ("abs_error",)}
"""kind of folder -> distances of its check.py"""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """What target.yaml says about limits: comment lines, `limits` by distance, and fields of `tolerances`."""

    lines: Sequence[str]
    limits: Mapping[str, float] = field(default_factory=dict)
    tolerances: Mapping[str, float] = field(default_factory=dict)
    num_parameters: int = 0
    """of the model that was measured; 0 = not known"""


def provisional(kind: str) -> Calibration:
    """Limits that refuse nothing, to measure with."""
    names = DISTANCES.get(kind, ())
    return Calibration(lines=["not calibrated yet"], limits={f"{name}/max": PROVISIONAL_BOUND for name in names})


def embedding_files(embedding: Embedding, *, class_name: str) -> dict[str, str]:
    """The four files and the scaffold's overlay for a sentence embedding model."""
    is_mean = embedding.pooling == "mean"
    values = {
        "class_name": class_name, "pooling": embedding.pooling, "is_normalised": embedding.is_normalised,
        "max_tokens": embedding.max_tokens, "is_lowercased": embedding.is_lowercased,
        "wrong_pooling": "cls" if is_mean else "mean",
        "wrong_pooling_name": "first_token" if is_mean else "mean_of_tokens",
        "wrong_length_name": "not_normalised" if embedding.is_normalised else "normalised",
    }  # fmt: skip
    return _tree("embedding", values)


def custom_files() -> dict[str, str]:
    """The example of a target with a function of its own."""
    return _tree("custom", {})


def causal_files() -> dict[str, str]:
    """Text models have a built-in workload, check and scaffold."""
    return _tree("causal_lm", {})


PARTS = ("encoder.py.j2",)
"""templates that others include"""


def _tree(kind: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Every file under `templates/target/<kind>`, rendered where its name ends in .j2."""
    root = data_dir("templates") / "target" / kind
    files = {}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if not path.is_file() or path.name in PARTS or "__pycache__" in relative.parts:
            continue
        if path.suffix == ".j2":
            files[str(relative.with_suffix(""))] = render(f"{kind}/{relative.as_posix()}", **values)
        else:
            files[str(relative)] = path.read_text(encoding="utf-8")
    return files


def target_yaml(
    name: str,
    *,
    description: str,
    model: Mapping[str, Any],
    source: Mapping[str, Any],
    files: Mapping[str, str],
    headline: str,
    calibration: Calibration,
    engines: str,
    workload_group: str = "",
    source_notes: Sequence[str] = (),
) -> str:
    """Text of target.yaml."""
    state = model.get("linear_state")
    listed = [(file, what) for file, what in FILE_NOTES.items() if any(path.startswith(file) for path in files)]
    return render(
        "folder.yaml.j2", name=name, schema=SCHEMA_FILE, files=listed, description=_scalar(description),
        model={key: _scalar(value) for key, value in model.items() if key != "linear_state"},
        linear_state=_flow(state) if state else "", source={key: _flow(value) for key, value in source.items()},
        source_notes=source_notes, headline=headline, workload_group=workload_group, engines=engines,
        calibration=calibration.lines, limits={key: _number(value) for key, value in calibration.limits.items()},
        tolerances={key: _number(value) for key, value in calibration.tolerances.items()},
    )  # fmt: skip


def model_section(origin: Origin, *, num_parameters: int) -> dict[str, Any]:
    """`model:` of target.yaml but for its source: what is known, nothing that is 0.

    `num_parameters`: as counted when the weights were made; 0 = by their headers, where there are some.
    """
    facts = origin.facts
    is_text = facts.kind is ModelKind.causal_lm
    section: dict[str, Any] = {"id": origin.model_id}
    if origin.revision:
        section["revision"] = origin.revision
    section |= {"architecture": facts.architecture, "modality": "text" if is_text else "custom"}
    # text is served in bfloat16 as a rule; a small encoder in what it comes in
    section["dtype"] = "bfloat16" if is_text or facts.weights is None else facts.weights.dtype
    section["licence"] = facts.licence
    section["num_parameters"] = num_parameters or (facts.weights.num_parameters if facts.weights else 0)
    section |= _sizes(facts, origin)
    section = {key: value for key, value in section.items() if value}
    if facts.linear_state != LinearState():
        section["linear_state"] = _changed(facts.linear_state)
    return section


def _sizes(facts: ModelFacts, origin: Origin) -> dict[str, int]:
    sizes = dict(facts.sizes)
    if origin.source.kind is SourceKind.seeded:
        sizes["vocab_size"] = int(origin.source.config["vocab_size"])
    if facts.embedding is not None:
        sizes["max_context_tokens"] = facts.embedding.max_tokens
        # an encoder keeps no keys and values between requests
        for name in ("num_kv_heads", "head_dim"):
            sizes.pop(name, None)
    return sizes


def source_section(origin: Origin) -> dict[str, Any]:
    """`model.source:` of target.yaml: the fields that its kind uses."""
    section = _changed(origin.source)
    return {"kind": origin.source.kind.value, **{key: value for key, value in section.items() if key != "kind"}}


def workload_group(origin: Origin) -> str:
    """`chat`, or `chat_short` where random weights or a short context make long prompts pointless."""
    context = origin.facts.sizes.get("max_context_tokens", 0)
    is_short = origin.source.kind is SourceKind.seeded or 0 < context < LONG_PROMPTS_TOKENS
    return "chat_short" if is_short else "chat"


def _changed(value: Any) -> dict[str, Any]:
    """Fields of a dataclass that differ from their defaults, as JSON data."""
    default = to_data(type(value)())
    return {key: item for key, item in to_data(value).items() if item != default[key]}


def _flow(value: Any) -> str:
    """A value in YAML's flow form, on one line."""
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**9)
    return text.strip().removesuffix("...").strip()


def _scalar(value: Any) -> str:
    return _flow(value)


def _number(value: float) -> str:
    """YAML 1.1 takes 1e-05 for text; 1.0e-05 is a number everywhere."""
    text = f"{value:.3g}"
    if "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return text


def read_places(folder: Path) -> list[Path]:
    """The files of a written folder, target.yaml first."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return sorted(found, key=lambda path: path.name != "target.yaml")
