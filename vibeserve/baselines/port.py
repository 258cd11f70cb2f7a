"""The port: what a peer is, whoever made it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from vibeserve.service import Launch


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """What a peer is to serve, and where.

    `dtype` is one of the peer's `dtypes` (f32, bf16), or empty for an engine that brings its own file.
    `max_concurrency` sequences of up to `max_sequence_tokens` (prompt and reply) must run at once. `flags` are appended
    last, so they win. `scratch_dir` may be written to before the start (a workspace to assemble). `scaffold` is the
    target's, with the parameters that follow from its spec; None = the text scaffold as it is.
    """

    model_dir: Path
    dtype: str
    max_concurrency: int
    max_sequence_tokens: int
    scratch_dir: Path
    flags: tuple[str, ...] = ()
    scaffold: Path | None = None
    scaffold_parameters: Mapping[str, int | float | str | bool] = field(default_factory=dict)
    allow_engines: tuple[str, ...] = ()
    """what the target lets a runtime import"""
    shares_prefixes: bool = False
    """the workload declares that requests share prefixes: a peer that can cache them does"""


@dataclass(frozen=True, kw_only=True)
class PrecisionFacts:
    """What a row of a table says about its bytes. `weight_bits` is an average where the file mixes formats."""

    weight_bits: float
    kv_bits: float
    weight_bytes: int
    """bytes of the weights on disk, each of which is read once per decode step"""


class Peer(Protocol):
    """A server that the user would otherwise run."""

    @property
    def name(self) -> str: ...

    @property
    def title(self) -> str:
        """For tables: the program and how it is run."""
        ...

    @property
    def baseline_class(self) -> BaselineClass: ...

    @property
    def precision(self) -> Precision: ...

    @property
    def dialect(self) -> str:
        """How it speaks: `contract.Session.dialect`."""
        ...

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Weights it can be started with, of `model_dir/<dtype>`; empty = its own file."""
        ...

    @property
    def install_command(self) -> str: ...

    def installed_version(self) -> str | None:
        """Exact version on this machine, or None. Starts nothing."""
        ...

    def model_name(self, options: PeerOptions) -> str:
        """What a request's `model` must say."""
        ...

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        """The tuned flags and the declared ones: what the manifest prints."""
        ...

    def launch(self, options: PeerOptions) -> Launch:
        """How to start it."""
        ...

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts: ...


DTYPE_BITS = {"f32": 32, "bf16": 16}
TORCH_DTYPES = {"f32": "float32", "bf16": "bfloat16"}

Log = Callable[[str], None]


def safetensors_bytes(folder: Path) -> int:
    """Size of the weights in one folder of a model_dir."""
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


TRANSFORMERS_ENV = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_TELEMETRY": "1"}
"""of servers that run transformers: quiet, and silent towards the hub"""


def dtype_facts(options: PeerOptions) -> PrecisionFacts:
    """Of a peer that serves the weights of `options.dtype`, and keeps its KV cache in the same."""
    bits = DTYPE_BITS[options.dtype]
    return PrecisionFacts(
        weight_bits=bits, kv_bits=bits, weight_bytes=safetensors_bytes(options.model_dir / options.dtype)
    )
