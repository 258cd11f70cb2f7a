"""Rules of `workload`: lengths, loads, and what each kind needs or may not have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from vibeserve.spec import Load, Modality, Model, Workload
from vibeserve.workloads import edit_task_problems, longest_sequence_tokens, trace_problems

WORKLOADS: dict[str, Modality] = {
    "chat": Modality.text,
    "shared_prefix": Modality.text,
    "code_edit": Modality.text,
    "constrained_json": Modality.text,
    "trace": Modality.text,
    "streaming_asr": Modality.speech,
    "text_to_image": Modality.image,
}
"""kinds of workload and the modality that serves them"""

PREDICTIONS = ("none", "edits", "pre_edit", "exact", "useless")

LOAD_FIELDS = {
    "trace_speed": "trace",
    "num_prefixes": "shared_prefix",
    "prediction": "code_edit",
    "audio_s": "streaming_asr",
}
"""field of a load -> the only kind of workload whose loads may have it"""

MAX_TEMPERATURE = 10.0
"""that runtimes take, of image tokens"""
WORKLOAD_FIELDS = {
    "trace": "trace",
    "edit_tasks": "code_edit",
    "shared_prefix_tokens": "shared_prefix",
    "audio_s_max": "streaming_asr",
    "num_steps": "text_to_image",
    "guidance_scale": "text_to_image",
    "temperature": "text_to_image",
}
"""field of `workload` -> the only built-in kind that may have it"""


def workload_problems(workload: Workload, *, model: Model, is_own: bool) -> Iterator[str]:
    """One line for every rule that the workload breaks, alone or with its model, each starting with the key.

    `is_own`: the target's workload.py makes the requests, and may not count in tokens.
    """
    for what in ("prompt_tokens", "output_tokens"):
        low, high = getattr(workload, f"{what}_min"), getattr(workload, f"{what}_max")
        if low < 1:
            yield f"workload.{what}_min: {low} is below 1"
        if low > high:
            yield f"workload.{what}_min: {low} is above workload.{what}_max {high}"
    longest = longest_sequence_tokens(workload)
    if longest > model.max_context_tokens and not is_own:
        prefix = "shared_prefix_tokens + " if workload.shared_prefix_tokens else ""
        yield (
            f"workload: {prefix}prompt_tokens_max + output_tokens_max = {longest} is above "
            f"model.max_context_tokens {model.max_context_tokens}"
        )
    wanted = WORKLOADS.get(workload.kind)
    if wanted is not None and wanted is not model.modality and not is_own:
        article = "an" if wanted is Modality.image else "a"
        needs = f"'{workload.kind}' needs {article} {wanted.name} model"
        yield f"workload.kind: {needs}, model.modality is {model.modality.name}"
    if workload.headline_load not in workload.loads:
        valid = ", ".join(workload.loads) or "(none)"
        yield f"workload.headline_load: '{workload.headline_load}' is no declared load; valid: {valid}"
    for name, load in workload.loads.items():
        yield from _load(name, load, kind=workload.kind)
    if not is_own:
        yield from _kind(workload, model=model)


def _load(name: str, load: Load, *, kind: str) -> Iterator[str]:
    key = f"workload.loads.{name}"
    if [load.concurrency > 0, load.rate_per_s > 0, load.trace_speed > 0].count(True) != 1:
        of_trace = ", trace_speed" if kind == "trace" else ""
        yield f"{key}: needs exactly one of concurrency and rate_per_s{of_trace}"
    elif load.concurrency and re.fullmatch(r"c\d+", name) and name != f"c{load.concurrency}":
        yield f"{key}: the name says {name[1:]}, concurrency is {load.concurrency}"
    elif load.rate_per_s and re.fullmatch(r"r[\d.]+", name) and name != f"r{load.rate_per_s:g}":
        yield f"{key}: the name says {name[1:]}, rate_per_s is {load.rate_per_s:g}"
    elif load.trace_speed and re.fullmatch(r"x[\d.]+", name) and name != f"x{load.trace_speed:g}":
        yield f"{key}: the name says {name[1:]}, trace_speed is {load.trace_speed:g}"
    for field, owner in LOAD_FIELDS.items():
        if getattr(load, field) and kind in WORKLOADS and kind != owner:
            yield f"{key}.{field}: only loads of a {owner} workload have one, workload.kind is {kind}"
    if load.prediction and load.prediction not in PREDICTIONS:
        yield f"{key}.prediction: '{load.prediction}' is not valid; valid: {', '.join(PREDICTIONS)}"


def _kind(workload: Workload, *, model: Model) -> Iterator[str]:
    """What one kind of workload needs, and what only it may have."""
    for field, kind in WORKLOAD_FIELDS.items():
        if getattr(workload, field) and workload.kind in WORKLOADS and workload.kind != kind:
            yield f"workload.{field}: only a {kind} workload has it, workload.kind is {workload.kind}"
    if workload.kind == "shared_prefix":
        if not workload.shared_prefix_tokens:
            yield "workload.shared_prefix_tokens: a shared_prefix workload needs the length of its prefix"
        if workload.num_prefixes < 1:
            yield f"workload.num_prefixes: {workload.num_prefixes} is below 1"
        if workload.reuse != "prefix":
            yield "workload.reuse: a shared_prefix workload declares `prefix`, else servers may not reuse it"
    if workload.kind == "trace":
        yield from trace_problems(workload)
    if workload.kind == "code_edit":
        if workload.predictions_ahead < 1:
            yield f"workload.predictions_ahead: {workload.predictions_ahead} is below 1"
        if workload.edit_tasks:
            yield from edit_task_problems(Path(workload.edit_tasks))
    if workload.kind == "streaming_asr":
        yield from _audio(workload)
    if workload.kind == "text_to_image":
        yield from _drawing(workload, kind=model.image_head.kind)
        if model.image_head.num_tokens and workload.output_tokens_max != model.image_head.num_tokens:
            tokens = f"{workload.output_tokens_max} is not model.image_head.num_tokens {model.image_head.num_tokens}"
            yield f"workload.output_tokens_max: {tokens}; an image takes that many positions"


def _drawing(workload: Workload, *, kind: str) -> Iterator[str]:
    """Steps are a flow's, the temperature is that of tokens."""
    if kind == "flow" and workload.num_steps < 1:
        yield "workload.num_steps: a model that draws by flow needs the number of denoising steps"
    if kind == "flow" and workload.temperature:
        yield "workload.temperature: a model that draws by flow has none"
    if kind == "tokens" and workload.num_steps:
        yield f"workload.num_steps: {workload.num_steps}, but a model that draws token by token has no steps; set 0"
    if kind == "tokens" and not 0 <= workload.temperature <= MAX_TEMPERATURE:
        yield f"workload.temperature: {workload.temperature:g} is not in [0, {MAX_TEMPERATURE:g}]"


def _audio(workload: Workload) -> Iterator[str]:
    low, high, chunk_s = workload.audio_s_min, workload.audio_s_max, workload.chunk_s
    if not 0 < low <= high:
        yield f"workload.audio_s_min: {low:g} and audio_s_max {high:g}: need 0 < min <= max"
    elif not 0 < chunk_s <= high:
        yield f"workload.chunk_s: {chunk_s:g} is not in (0, workload.audio_s_max {high:g}]"
