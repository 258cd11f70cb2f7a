"""Batched transformers over a copied prefix cache: the competent peer of workloads that share prefixes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.baselines.port import TORCH_DTYPES, TRANSFORMERS_ENV, PeerOptions, PrecisionFacts, dtype_facts
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from vibeserve.service import Launch

SERVED_NAME = "model"
MAX_PREFIXES = 64
"""prefixes that are kept: more than any declared load has, so that memory and not the number is what they cost"""
_LAUNCHERS = Path(__file__).with_name("launchers")


@dataclass(frozen=True, kw_only=True)
class TransformersPrefixPeer:
    """See `port.Peer`. Every prefix is computed once; a request gets a copy of its cache and joins the decode batch."""

    name: str = "transformers_prefix"
    title: str = "batched transformers over a copied prefix cache"
    baseline_class: BaselineClass = BaselineClass.competent
    precision: Precision = Precision.same_bytes
    dialect: str = "vllm"
    dtypes: tuple[str, ...] = ("f32", "bf16")
    install_command: str = "pip install vibeserve"

    def installed_version(self) -> str | None:
        from importlib import metadata

        try:
            return metadata.version("transformers")
        except metadata.PackageNotFoundError:
            return None

    def model_name(self, options: PeerOptions) -> str:
        return SERVED_NAME

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        flags = ("--dtype", TORCH_DTYPES[options.dtype], "--max-num-seqs", str(options.max_concurrency))
        return (*flags, "--max-prefixes", str(MAX_PREFIXES), *options.flags)

    def launch(self, options: PeerOptions) -> Launch:
        from vibeserve.service import Launch

        program = ("{python}", str(_LAUNCHERS / "transformers_prefix_server.py"))
        where = ("--host", "{host}", "--port", "{port}", "--threads", "{threads}")
        return Launch(
            name=self.name,
            argv=(*program, "--model", str(options.model_dir / options.dtype), *where, *self.flags(options)),
            workdir=_LAUNCHERS,
            model_dir=options.model_dir,
            env=dict(TRANSFORMERS_ENV),
        )

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return dtype_facts(options)
