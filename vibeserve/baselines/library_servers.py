"""Peers that are libraries, each behind a thin server of ours (`launchers/peer_server`), as one adds it in a day."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.baselines.installs import get_recipe, prefix_of, read_record
from vibeserve.baselines.own_environment import SERVED_NAME, file_facts, gguf_of
from vibeserve.baselines.port import TORCH_DTYPES, TRANSFORMERS_ENV, PeerOptions, PrecisionFacts, dtype_facts
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from vibeserve.service import Launch

_LAUNCHERS = Path(__file__).with_name("launchers")
LOOKUP_TOKENS = 10
"""guesses a step, transformers' own default"""
LOOKUP_NGRAM = 3
"""longest n-gram that is looked for, then shorter ones; transformers' default is 2. Declared, not swept"""


def _program(module: str, *, folder: str, options: PeerOptions) -> tuple[str, ...]:
    """The command line of one of these servers up to its own flags; `folder` holds tokenizer.json."""
    return (
        *("{python}", "-m", f"peer_server.{module}", "--host", "{host}", "--port", "{port}", "--threads", "{threads}"),
        *("--served-model-name", SERVED_NAME, "--tokenizer-dir", f"{{model_dir}}/{folder}"),
        *("--max-sequence-tokens", str(options.max_sequence_tokens)),
    )


@dataclass(frozen=True, kw_only=True)
class GeneratePeer:
    """See `port.Peer`. transformers' `generate`, one request at a time; `flags_of_its_own` say what it adds."""

    name: str
    title: str
    baseline_class: BaselineClass
    flags_of_its_own: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    """modules beside transformers"""
    precision: Precision = Precision.same_bytes
    dialect: str = "vllm"
    dtypes: tuple[str, ...] = ("f32", "bf16")
    install_command: str = "pip install transformers tokenizers starlette uvicorn llguidance"

    def installed_version(self) -> str | None:
        from importlib import metadata, util

        if any(util.find_spec(module) is None for module in ("tokenizers", "starlette", "uvicorn", *self.needs)):
            return None
        try:
            version = metadata.version("transformers")
            return " + ".join([version, *(f"{name} {metadata.version(name)}" for name in self.needs)])
        except metadata.PackageNotFoundError:
            return None

    def model_name(self, options: PeerOptions) -> str:
        return SERVED_NAME

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        return ("--dtype", TORCH_DTYPES[options.dtype], *self.flags_of_its_own, *options.flags)

    def launch(self, options: PeerOptions) -> Launch:
        from vibeserve.service import Launch

        program = _program("transformers_engine", folder=options.dtype, options=options)
        return Launch(
            name=self.name,
            argv=(*program, "--model-dir", f"{{model_dir}}/{options.dtype}", *self.flags(options)),
            workdir=_LAUNCHERS,
            model_dir=options.model_dir,
            env=dict(TRANSFORMERS_ENV),
        )

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return dtype_facts(options)


@dataclass(frozen=True, kw_only=True)
class OpenVinoPeer:
    """See `port.Peer`. OpenVINO GenAI's continuous batching on the GGUF as shipped."""

    name: str = "openvino"
    title: str = "OpenVINO GenAI, continuous batching (GGUF as shipped)"
    baseline_class: BaselineClass = BaselineClass.competent
    precision: Precision = Precision.any
    dialect: str = "vllm"
    dtypes: tuple[str, ...] = ()
    install_command: str = "vibeserve peers install openvino"

    def installed_version(self) -> str | None:
        record = read_record(get_recipe("openvino"))
        return None if record is None else record.version

    def model_name(self, options: PeerOptions) -> str:
        return SERVED_NAME

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        caching = ("--prefix-caching",) if options.shares_prefixes else ()
        return ("--slots", str(options.max_concurrency), *caching, *options.flags)

    def launch(self, options: PeerOptions) -> Launch:
        from vibeserve.service import Launch

        gguf = _writable_copy(gguf_of(options.model_dir, peer=self.name), options.scratch_dir / self.name)
        program = _program("openvino_engine", folder="bf16", options=options)
        return Launch(
            name=self.name,
            argv=(*program, "--gguf", str(gguf), *self.flags(options)),
            workdir=_LAUNCHERS,
            model_dir=options.model_dir,
            writable=(gguf.parent,),
            python=prefix_of(get_recipe("openvino")) / "bin" / "python",
        )

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return file_facts(options.model_dir, peer=self.name)


def _writable_copy(file: Path, folder: Path) -> Path:
    """A copy of its own below `folder`, made once: the library opens a GGUF for writing, though it only reads it, and
    the model's own file is read-only to every server."""
    copy = folder / file.name
    if not copy.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f".{file.name}.draft"
        shutil.copyfile(file, draft)
        draft.replace(copy)
    return copy
