"""Peers in virtual environments of their own: vLLM's CPU build and llama.cpp."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.baselines.installs import get_recipe, prefix_of, read_record
from vibeserve.baselines.port import DTYPE_BITS, TORCH_DTYPES, PeerOptions, PrecisionFacts, dtype_facts
from vibeserve.core.paths import cache_dir
from vibeserve.errors import SpecError
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from vibeserve.service import Launch

SERVED_NAME = "model"
_LAUNCHERS = Path(__file__).with_name("launchers")
VLLM_START_S = 600.0
"""the first start compiles: 80 s on a quiet machine, 260 s on a busy one; later ones load the compiled code"""
NGRAM: Mapping[str, str | int] = {
    "method": "ngram",
    "num_speculative_tokens": 8,
    "prompt_lookup_max": 4,
    "prompt_lookup_min": 2,
}
"""prompt lookup as vLLM names it: n-grams of 4 to 2 tokens, 8 guesses a step. Declared, not swept"""


@dataclass(frozen=True, kw_only=True)
class VllmPeer:
    """See `port.Peer`. vLLM's CPU build with torch.compile, its default; `speculation` is its own, in its words."""

    name: str = "vllm"
    title: str = "vLLM (CPU build, torch.compile)"
    speculation: Mapping[str, str | int] = field(default_factory=dict)
    baseline_class: BaselineClass = BaselineClass.competent
    precision: Precision = Precision.same_bytes
    dialect: str = "vllm"
    dtypes: tuple[str, ...] = ("bf16", "f32")
    install_command: str = "vibeserve peers install vllm"

    def installed_version(self) -> str | None:
        record = read_record(get_recipe("vllm"))
        return None if record is None else record.version

    def model_name(self, options: PeerOptions) -> str:
        return SERVED_NAME

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        flags = ["--dtype", TORCH_DTYPES[options.dtype], "--max-model-len", str(options.max_sequence_tokens)]
        # where no prefix is shared every prompt opens with a nonce, so caching could only cost
        caching = "--enable-prefix-caching" if options.shares_prefixes else "--no-enable-prefix-caching"
        flags += ["--max-num-seqs", str(options.max_concurrency), caching]
        flags += ["--speculative-config", json.dumps(dict(self.speculation))] if self.speculation else []
        return (*flags, *options.flags)

    def launch(self, options: PeerOptions) -> Launch:
        from vibeserve.service import Launch

        compiled = cache_dir() / "peers" / f"{prefix_of(get_recipe('vllm')).name}-compiled"
        compiled.mkdir(parents=True, exist_ok=True)
        program = ("{python}", "-m", "vllm.entrypoints.cli.main", "serve", f"{{model_dir}}/{options.dtype}")
        return Launch(
            name=self.name,
            argv=(
                *program,
                *("--served-model-name", SERVED_NAME, "--host", "{host}", "--port", "{port}"),
                *self.flags(options),
            ),
            workdir=options.model_dir / options.dtype,
            model_dir=options.model_dir,
            writable=(compiled,),
            python=prefix_of(get_recipe("vllm")) / "bin" / "python",
            env=_vllm_environment(compiled, kv_space_gib=_kv_space_gib(options)),
            ready_timeout_s=VLLM_START_S,
            local_sockets=True,
        )

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return dtype_facts(options)


def _kv_space_gib(options: PeerOptions) -> int:
    """Whole GiB, at least one, that hold keys and values of every sequence that must run at once, as if every layer
    kept them; one more where prefixes stay cached. 1 GiB holds 22 sequences of 1,024 tokens of a 135M model in f32."""
    config = json.loads((options.model_dir / options.dtype / "config.json").read_text(encoding="utf-8"))
    num_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    num_values = 2 * config["num_hidden_layers"] * (config.get("num_key_value_heads") or num_heads) * head_dim
    num_tokens = options.max_concurrency * options.max_sequence_tokens
    num_bytes: int = num_values * num_tokens * DTYPE_BITS[options.dtype] // 8
    return -(-num_bytes // 2**30) + options.shares_prefixes


def _vllm_environment(compiled: Path, *, kv_space_gib: int) -> dict[str, str]:
    """Binding of cores is the wall's.

    Its wheel brings Intel's OpenMP and asks for it to be preloaded. The ahead-of-time cache of 0.32.0 cannot be read
    back on a CPU (`finalize_loading` is missing), so that every start would compile anew; Inductor's own cache can.
    """
    openmp = prefix_of(get_recipe("vllm")) / "lib" / "libiomp5.so"
    return {
        **({"LD_PRELOAD": str(openmp)} if openmp.is_file() else {}),
        "VLLM_USE_AOT_COMPILE": "0",
        "VLLM_CPU_KVCACHE_SPACE": str(kv_space_gib),
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CACHE_ROOT": str(compiled),
        "TORCHINDUCTOR_CACHE_DIR": str(compiled / "inductor"),
        "NUMBA_CACHE_DIR": str(compiled / "numba"),
        "VLLM_LOGGING_LEVEL": "WARNING",
    }


@dataclass(frozen=True, kw_only=True)
class LlamaCppPeer:
    """See `port.Peer`. llama.cpp's own server on the GGUF as shipped."""

    name: str = "llama_cpp"
    title: str = "llama.cpp server (GGUF as shipped)"
    baseline_class: BaselineClass = BaselineClass.competent
    precision: Precision = Precision.any
    dialect: str = "llama_cpp"
    dtypes: tuple[str, ...] = ()
    install_command: str = "vibeserve peers install llama_cpp"

    def installed_version(self) -> str | None:
        record = read_record(get_recipe("llama_cpp"))
        return None if record is None else record.version

    def model_name(self, options: PeerOptions) -> str:
        return SERVED_NAME

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        flags = ("--slots", str(options.max_concurrency), "--context-tokens", str(options.max_sequence_tokens))
        return (*flags, *options.flags)

    def launch(self, options: PeerOptions) -> Launch:
        from vibeserve.service import Launch

        script = str(_LAUNCHERS / "llama_cpp_server.py")
        gguf = str(gguf_of(options.model_dir, peer=self.name))
        return Launch(
            name=self.name,
            argv=(
                *(
                    "{python}",
                    script,
                    "--model",
                    gguf,
                    "--host",
                    "{host}",
                    "--port",
                    "{port}",
                    "--threads",
                    "{threads}",
                ),
                *self.flags(options),
            ),
            workdir=_LAUNCHERS,
            model_dir=options.model_dir,
            python=prefix_of(get_recipe("llama_cpp")) / "bin" / "python",
        )

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return file_facts(options.model_dir, peer=self.name)


def file_facts(model_dir: Path, *, peer: str) -> PrecisionFacts:
    """Of an engine that reads the GGUF as shipped: bits a weight are an average, keys and values are in 16."""
    from vibeserve.weights import read_model_dir

    size = gguf_of(model_dir, peer=peer).stat().st_size
    parameters = read_model_dir(model_dir).num_parameters
    return PrecisionFacts(weight_bits=round(8 * size / parameters, 2), kv_bits=16, weight_bytes=size)


def gguf_of(model_dir: Path, *, peer: str) -> Path:
    """The file as shipped; `SpecError` where the model has none."""
    found = sorted((model_dir / "original").glob("*.gguf"))
    if not found:
        raise SpecError(
            f"peer '{peer}' reads a GGUF, and {model_dir.name}/original holds none",
            hint=f"declare a model whose source is a GGUF, or leave {peer} out of baseline",
        )
    return found[0]
