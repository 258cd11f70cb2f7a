"""`transformers serve`, the server that comes with the model library, with and without continuous batching."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.baselines.port import TORCH_DTYPES, TRANSFORMERS_ENV, PeerOptions, PrecisionFacts, dtype_facts
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from vibeserve.service import Launch

PAGE_TOKENS = 256
"""tokens of one KV page, transformers' default; a request holds whole pages"""
FREE_PAGES = 4 / 3
"""pages beyond what the sequences need: its scheduler stops admitting below a fifth of free pages"""
BATCH_TOKENS = 512
"""tokens of one step. Measured on SmolLM2-135M at 8 sequences: 128, 512 and 2048 lie within noise, eager attention
loses a quarter to sdpa; left unset, cache and batch are sized from the machine's free memory"""


@dataclass(frozen=True, kw_only=True)
class TransformersPeer:
    """See `port.Peer`. The model is given as the argument, so that it is loaded before `/health` answers and stays."""

    name: str
    title: str
    baseline_class: BaselineClass
    continuous_batching: bool
    precision: Precision = Precision.same_bytes
    dialect: str = "transformers"
    dtypes: tuple[str, ...] = ("f32", "bf16")
    install_command: str = "pip install 'transformers[serving]'"

    def installed_version(self) -> str | None:
        from importlib import metadata, util

        # the package alone is not enough: its server needs the `serving` extra
        if any(util.find_spec(module) is None for module in ("fastapi", "uvicorn", "openai")):
            return None
        try:
            return metadata.version("transformers")
        except metadata.PackageNotFoundError:
            return None

    def model_name(self, options: PeerOptions) -> str:
        """The folder: a server that is pinned to one model answers to exactly the name it was given."""
        return str(options.model_dir / options.dtype)

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        flags = ["--device", "cpu", "--dtype", TORCH_DTYPES[options.dtype]]
        if self.continuous_batching:
            pages = -(-options.max_sequence_tokens // PAGE_TOKENS) * options.max_concurrency
            flags += ["--continuous-batching", "--attn-implementation", "sdpa"]
            flags += ["--cb-num-blocks", str(int(pages * FREE_PAGES) + 1), "--cb-max-batch-tokens", str(BATCH_TOKENS)]
        return (*flags, *options.flags)

    def launch(self, options: PeerOptions) -> Launch:
        from vibeserve.service import Launch

        program = ("{python}", "-m", "transformers.cli.transformers", "serve", self.model_name(options))
        return Launch(
            name=self.name,
            argv=(*program, "--host", "{host}", "--port", "{port}", *self.flags(options)),
            workdir=options.model_dir / options.dtype,
            model_dir=options.model_dir,
            env=dict(TRANSFORMERS_ENV),
        )

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return dtype_facts(options)
