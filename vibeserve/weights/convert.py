"""Child process: a JSON job on stdin, model folders `f32/` and `bf16/` in the job's destination, facts on stdout.

Run as `python -m vibeserve.weights.convert`; only this process imports torch and transformers.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

from vibeserve.weights.seeded import build_seeded

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def main() -> int:
    job = json.load(sys.stdin)
    torch.set_num_threads(int(job.get("num_threads", 2)))
    destination = Path(job["destination"])
    if job["kind"] == "image_folder" or (job["kind"] == "seeded" and job["modality"] == "image"):
        sys.stdout.write(json.dumps(_image_facts(job, destination=destination)) + "\n")
        return 0
    model, tokenizer = _load(job, destination=destination)
    for name, dtype in DTYPES.items():
        _save(model, tokenizer, folder=destination / name, dtype=dtype)
    facts = _facts(sum(parameter.numel() for parameter in model.parameters()))
    sys.stdout.write(json.dumps(facts) + "\n")
    return 0


def _image_facts(job: dict[str, Any], *, destination: Path) -> dict[str, Any]:
    """Of a model that is no class of transformers: written tensor by tensor."""
    if job["kind"] == "image_folder":
        from vibeserve.weights.image_folder import write_image_folder

        return _facts(write_image_folder(Path(job["folder"]), destination=destination))
    from vibeserve.weights.seeded_image import write_seeded_image
    from vibeserve.weights.seeded_janus import ARCHITECTURE, write_seeded_janus

    write = write_seeded_janus if job["architecture"] == ARCHITECTURE else write_seeded_image
    num_parameters = write(
        destination, architecture=job["architecture"], seed=int(job["seed"]), config=job["config"],
        head=job["image_head"],
    )  # fmt: skip
    return _facts(num_parameters)


def _facts(num_parameters: int) -> dict[str, Any]:
    return {
        "num_parameters": num_parameters,
        "dtypes": {name: str(dtype).removeprefix("torch.") for name, dtype in DTYPES.items()},
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]},
    }


def _load(job: dict[str, Any], *, destination: Path) -> tuple[Any, Any]:
    if job["kind"] == "seeded" and job["modality"] == "speech":
        from vibeserve.weights.seeded_speech import build_seeded_speech

        return build_seeded_speech(
            architecture=job["architecture"], seed=int(job["seed"]), config=job["config"], encoder=job["speech_encoder"]
        )
    if job["kind"] == "moonshine":
        from vibeserve.weights.moonshine_model import load_moonshine

        return load_moonshine(Path(job["folder"]))
    if job["kind"] == "seeded":
        return build_seeded(
            architecture=job["architecture"], seed=int(job["seed"]), config=job["config"], is_causal=job["is_causal"]
        )
    if job["kind"] == "gguf":
        path = Path(job["gguf"])
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
        model = AutoModelForCausalLM.from_pretrained(str(path.parent), gguf_file=path.name, dtype=torch.float32)
        return _forget_quantisation(model), tokenizer
    if job["kind"] == "folder":
        return _load_folder(Path(job["folder"]))
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=f"{destination.name}-") as downloads:
        return _load_folder(_download(job, folder=Path(downloads)))


def _load_folder(folder: Path) -> tuple[Any, Any]:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), AutoTokenizer.from_pretrained(folder)


def _download(job: dict[str, Any], *, folder: Path) -> Path:
    from huggingface_hub import snapshot_download

    patterns = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"]
    return Path(snapshot_download(job["id"], revision=job["revision"], allow_patterns=patterns, local_dir=folder))


def _forget_quantisation(model: Any) -> Any:
    """transformers refuses to save a model that came from a GGUF, though its tensors are plain f32 by now."""
    model.hf_quantizer = None
    model.is_quantized = False
    for owner, attribute in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(owner, attribute):
            delattr(owner, attribute)
    return model


def _save(model: Any, tokenizer: Any, *, folder: Path, dtype: torch.dtype) -> None:
    converted = model.to(dtype)
    converted.config.dtype = dtype
    converted.save_pretrained(folder, max_shard_size="1TB")
    if tokenizer is not None:
        tokenizer.save_pretrained(folder)
    _flatten_config(folder / "config.json")


def _flatten_config(path: Path) -> None:
    """Add top-level `rope_theta` where transformers 5 nests it, for readers of the older layout."""
    config = json.loads(path.read_text(encoding="utf-8"))
    nested = config.get("rope_parameters") or {}
    if "rope_theta" in nested:
        config.setdefault("rope_theta", nested["rope_theta"])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
