"""A seeded random model whose greedy text depends on every layer and survives bf16 rounding. Child process only.

Plain random weights make poor test models: with V candidates the gap between the two best logits shrinks like
1 / (2 ln V) of the best one, so rounding flips 2-3% of greedy tokens. Here few tokens have readout rows of full norm,
orthogonal to each other, and all weights lie on the bf16 grid. What else amplifies rounding is damped by name: the
output gates of linear attention, the branches of deep models, and mixtures whose experts have nothing in common, where
a near tie of the router would change everything. Computing in bf16 then flips 1-2% of the tokens of Llama, Qwen3,
Mamba2, OlmoHybrid and Qwen3-Next, by less than the gate's margin, while a perturbed layer, a 4-bit format or another
RoPE base changes 20-80% of them (`tests/accuracy/test_faults.py`, `tests/weights/test_seeded_architectures.py`).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedTokenizerFast

from vibeserve.errors import WeightsError

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
DEFAULT_VOCAB_SIZE = 2048
GAINS = {
    "q_proj": math.sqrt(1.25),
    "k_proj": math.sqrt(1.25),
    "down_proj": 2.0,
    "g_proj": 0.5,
    "in_proj_qkvz": 0.7,
    "linear_attn.o": 0.5,
}
"""part of a parameter's name -> factor of its standard deviation. Sharper attention makes text depend on position and
context; smaller output gates of linear attention keep its rounding down"""
BRANCH_ENDS = ("o_proj", "out_proj", "down_proj")
"""projections back to the residual stream; their sum over a deep model stays what it is for two layers"""
EXPERTS, EXPERT_SPREAD = ".experts.", 0.1
"""experts differ in so large a share of their standard deviation: a near tie of the router then changes little"""
DT_MIN, DT_MAX = 0.001, 0.1
"""step sizes of state-space and gated delta layers, log-uniform (Gu and Dao 2023, Mamba)"""
READOUT_NORM = 3.0
"""standard deviation of the readable logits, in nats"""
BACKGROUND = 0.05
"""norm of the other readout rows, as a share"""

UNDECLARED = ("rope_theta", "head_dim")
"""keys that transformers reads where a configuration class does not declare them"""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def build_seeded(
    *, architecture: str, seed: int, config: dict[str, Any], is_causal: bool = True
) -> tuple[Any, Any | None]:
    """Model (f32, values on the bf16 grid) and tokenizer; a pure function of its arguments and the library versions.

    A causal language model, or (`is_causal` false) what `AutoModel` makes of the architecture, with a tokenizer where
    it has a vocabulary.
    """
    known = _known_config(architecture)
    unknown = sorted(name for name in config if name not in known and name not in UNDECLARED)
    if unknown:
        raise WeightsError(
            f"model.source.config: {', '.join(unknown)} unknown to '{architecture}'; valid: {', '.join(sorted(known))}"
        )
    options: dict[str, Any] = {name: _as_declared(name, value) for name, value in config.items()}
    tokenizer = None
    if is_causal or "vocab_size" in known:
        vocab_size = int(config.get("vocab_size", DEFAULT_VOCAB_SIZE))
        tokenizer = train_tokenizer(vocab_size)
        end = tokenizer.token_to_id("<|im_end|>")
        options |= {"vocab_size": vocab_size, "bos_token_id": 1, "eos_token_id": end, "pad_token_id": end}
    if is_causal:
        options = {"tie_word_embeddings": False, **options}
    model_config = AutoConfig.for_model(architecture, **options)
    model = _make(model_config, seed=seed, is_causal=is_causal)
    _initialise(model, readable=readable_ids(tokenizer) if is_causal and tokenizer else [], seed=seed)
    if tokenizer is None:
        return model, None
    max_tokens = int(getattr(model_config, "max_position_embeddings", None) or 2048)
    return model, wrap_tokenizer(tokenizer, max_tokens=max_tokens)


def _known_config(architecture: str) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING

    if architecture not in CONFIG_MAPPING:
        from transformers import __version__

        raise WeightsError(f"model.architecture: transformers {__version__} has no '{architecture}'")
    known: dict[str, Any] = AutoConfig.for_model(architecture).to_dict()
    return known


def _as_declared(name: str, value: Any) -> Any:
    """Configurations are strict about types, and YAML writes 10000 for a float."""
    if name == "rope_theta":
        return float(value)
    if name == "tie_word_embeddings":
        return bool(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _make(model_config: Any, *, seed: int, is_causal: bool) -> Any:
    """The model as transformers initialises it: what is no matrix (decays, step sizes) keeps these values."""
    torch.manual_seed(seed)
    try:
        if is_causal:
            return AutoModelForCausalLM.from_config(model_config, dtype=torch.float32).eval()
        return AutoModel.from_config(model_config, dtype=torch.float32).eval()
    except ValueError as error:
        kind = "causal language model" if is_causal else "model"
        raise WeightsError(
            f"model.architecture: transformers makes no {kind} of '{model_config.model_type}': {error}"
        ) from error


def train_tokenizer(vocab_size: int) -> Tokenizer:
    """Byte-level BPE on the stdlib's help topics, the only real text that every Python ships."""
    from pydoc_data.topics import topics

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([topics[name] for name in sorted(topics)], trainer=trainer)
    if tokenizer.get_vocab_size() != vocab_size:
        reached = tokenizer.get_vocab_size()
        raise WeightsError(
            f"model.source.config.vocab_size {vocab_size}: the text gives {reached} tokens; use 512 to 8192"
        )
    return tokenizer


def wrap_tokenizer(tokenizer: Tokenizer, *, max_tokens: int) -> Any:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
    )


def readable_ids(tokenizer: Tokenizer) -> list[int]:
    """Tokens of at least two printable ASCII characters: greedy text is then valid UTF-8 at every step."""
    first = len(SPECIAL_TOKENS) + 256
    decoded = ((token, tokenizer.decode([token])) for token in range(first, tokenizer.get_vocab_size()))
    return [token for token, text in decoded if text.isascii() and text.isprintable() and text.strip().isalpha()]


@torch.no_grad()
def _initialise(model: Any, *, readable: list[int], seed: int) -> None:
    """Draw every matrix anew; `readable` tokens get the readout, an empty list leaves the model without one."""
    generator = torch.Generator().manual_seed(seed)
    num_layers = int(getattr(model.config, "num_hidden_layers", None) or 2)
    embedding = model.get_input_embeddings()
    for name, parameter in model.named_parameters():
        if name.endswith("dt_bias"):
            parameter.copy_(_step_biases(parameter.shape, generator=generator))
        elif _is_matrix(name, parameter):
            is_embedding = "embed" in name or parameter is getattr(embedding, "weight", None)
            scale = 1.0 if is_embedding else _gain(name, num_layers=num_layers) / math.sqrt(parameter.shape[-1])
            parameter.copy_(_normal(name, parameter.shape, generator=generator) * scale)
    if readable:
        set_readout(model.get_output_embeddings().weight, readable=readable, generator=generator)
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16).to(torch.float32))


def _is_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Weights of linears, convolutions, embeddings and experts. Norms and biases stay at their neutral value, and what
    governs a recurrence (A_log, D) as the architecture has it."""
    return parameter.dim() >= 2 and (name.endswith("weight") or EXPERTS in name)


def _gain(name: str, *, num_layers: int) -> float:
    gain = math.prod(factor for part, factor in GAINS.items() if part in name)
    is_branch_end = any(part in name for part in BRANCH_ENDS)
    return gain * min(1.0, math.sqrt(2 / num_layers)) if is_branch_end else gain


def _normal(name: str, shape: torch.Size, *, generator: torch.Generator) -> torch.Tensor:
    """Standard normal values; experts, [num_experts, ...], share most of them."""
    values = torch.randn(shape, generator=generator)
    if EXPERTS not in name or len(shape) < 3:
        return values
    common = torch.randn(shape[1:], generator=generator)
    return EXPERT_SPREAD * values + math.sqrt(1 - EXPERT_SPREAD**2) * common


def _step_biases(shape: torch.Size, *, generator: torch.Generator) -> torch.Tensor:
    """Biases whose softplus is log-uniform from DT_MIN to DT_MAX."""
    spread = torch.rand(shape, generator=generator) * math.log(DT_MAX / DT_MIN)
    steps = DT_MIN * spread.exp()
    return steps + torch.log(-torch.expm1(-steps))


def set_readout(weight: torch.Tensor, *, readable: list[int], generator: torch.Generator) -> None:
    """Full rows for hidden_size / 2 readable tokens, a faint background for the rest."""
    hidden_size = weight.shape[1]
    weight.copy_(torch.randn(weight.shape, generator=generator) * (BACKGROUND * READOUT_NORM / math.sqrt(hidden_size)))
    order = torch.randperm(len(readable), generator=generator)[: hidden_size // 2]
    chosen = torch.tensor(readable)[order]
    basis, _ = torch.linalg.qr(torch.randn(hidden_size, len(chosen), generator=generator))
    weight[chosen] = basis.T * READOUT_NORM
