"""Workload `code_edit`: part of a source file and an instruction; the model writes the edited file, greedily.

The files are the standard library's, in three pools by the digest of their names, or those of the user's own tasks
(`workload.edit_tasks`). Clients may predict the answer (`workload.prediction`): `pre_edit` and `useless` predictions
are part of these requests; `exact` and `edits` need the reference's own answer and are added for a load
(`modalities.text.answers`).
"""

from __future__ import annotations

import random
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.edit_tasks import EditTask, edit_task_problems, edit_tasks
from vibeserve.workloads.exact_text import MAX_ATTEMPTS, draw_nonce, fit_middle
from vibeserve.workloads.predictions import with_prediction
from vibeserve.workloads.sampling import check_lengths, logprobs_places, seeded_random

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LEAST_PROMPT_TOKENS = 96
"""nonce, instruction and a few lines of source must fit"""
CHARS_PER_TOKEN = 8
"""source is cut to so many characters a token before it is measured; real code has three to four"""
DEFINITION = re.compile(r"^(?:async )?(?:def|class) (?P<name>[A-Za-z]\w+)", re.MULTILINE)
INSTRUCTIONS = (
    "Rename `{name}` to `{name}_{suffix}` everywhere in this file.",
    "Add a docstring to `{name}` that says what it does.",
    "Add type annotations to `{name}`.",
    "Log a debug message with the arguments at the start of `{name}`.",
    "Rewrite the string formatting in `{name}` with f-strings.",
    "Raise a ValueError with a clear text in `{name}` when an argument is None.",
)


TAIL = "\nThe edited file:\n\n"
USELESS_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class _Drawn:
    """A prompt is `head`, `code` and `TAIL`."""

    head: str
    code: str
    num_tokens: int


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    name: str
    text: str
    definitions: tuple[tuple[int, str], ...]
    """offset and name of every function and class at the top level"""


def code_edit_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    """Endless edits; prompts have a length in the declared range, whole lines of source, and a nonce at the start."""
    check_lengths(workload, least_prompt_tokens=LEAST_PROMPT_TOKENS)
    if workload.edit_tasks:
        _check_tasks(workload, pool=pool)
    elif not source_files(pool):
        raise SpecError(
            f"the code_edit workload finds no source files of the standard library in {_stdlib()}",
            hint="use a Python installation that ships its sources",
        )
    return _stream(workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share)


def _stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    generator = seeded_random(workload, pool=pool, seed=seed)
    for number, logprobs in enumerate(logprobs_places(generator, share=logprobs_share)):
        drawn = _draw(workload, generator=generator, pool=pool, tokenizer=tokenizer)
        request = PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            prompt=drawn.head + drawn.code + TAIL,
            num_prompt_tokens=drawn.num_tokens,
            max_tokens=generator.randint(workload.output_tokens_min, workload.output_tokens_max),
            logprobs=logprobs,
        )
        if workload.prediction == "pre_edit":
            request = with_prediction(request, drawn.code)
        elif workload.prediction == "useless":
            # of the request alone: what the other loads ask stays the same
            request = with_prediction(request, _other_code(request, pool=pool, path=workload.edit_tasks))
        yield request


def _draw(workload: Workload, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer) -> _Drawn:
    """One prompt; excerpts that are too short are drawn again."""
    for _ in range(MAX_ATTEMPTS):
        wanted = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        if workload.edit_tasks:
            task = generator.choice(edit_tasks(Path(workload.edit_tasks), pool))
            head, code = _task_head(task, generator=generator), task.code.rstrip() + "\n"
            # a task is asked whole, or not at all
            borders, limit = [len(code)], workload.prompt_tokens_max
        else:
            head, code = _excerpt(wanted, generator=generator, pool=pool)
            borders, limit = [match.end() for match in re.finditer(r"\n", code)], wanted
        prompt, num_tokens = fit_middle(head, code, TAIL, borders=borders, num_tokens=limit, tokenizer=tokenizer)
        kept = prompt.removeprefix(head).removesuffix(TAIL)
        if kept and workload.prompt_tokens_min <= num_tokens <= workload.prompt_tokens_max:
            return _Drawn(head=head, code=kept, num_tokens=num_tokens)
    low, high = workload.prompt_tokens_min, workload.prompt_tokens_max
    raise SpecError(
        f"no source excerpt of {low} to {high} tokens found in {MAX_ATTEMPTS} attempts",
        hint="widen workload.prompt_tokens_min and prompt_tokens_max; cuts fall between lines",
    )


def _excerpt(num_tokens: int, *, generator: random.Random, pool: Pool) -> tuple[str, str]:
    """Head of a prompt, and the source from a definition on, more of it than fits."""
    file = generator.choice(source_files(pool))
    start, name = generator.choice(file.definitions)
    instruction = generator.choice(INSTRUCTIONS).format(name=name, suffix=draw_nonce(generator)[:4])
    head = f"# {draw_nonce(generator)}\n{instruction}\n\n{file.name}:\n\n"
    return head, file.text[start : start + CHARS_PER_TOKEN * num_tokens]


def _task_head(task: EditTask, *, generator: random.Random) -> str:
    return f"# {draw_nonce(generator)}\n{task.instruction}\n\n"


def _other_code(request: PromptRequest, *, pool: Pool, path: str) -> str:
    """Code that has nothing to do with the request, about as long as its answer may be."""
    generator = random.Random(f"useless-{request.request_id}")
    if path:
        texts = [task.code for task in edit_tasks(Path(path), pool) if task.code.rstrip() not in request.prompt]
        # a file of one task: its pool has no other
        return generator.choice(texts) if texts else draw_nonce(generator)
    file = generator.choice([file for file in source_files(pool) if f"\n{file.name}:\n" not in request.prompt])
    start, _ = generator.choice(file.definitions)
    return file.text[start : start + USELESS_CHARS_PER_TOKEN * request.max_tokens]


def _check_tasks(workload: Workload, *, pool: Pool) -> None:
    path = Path(workload.edit_tasks)
    problems = edit_task_problems(path)
    if not problems and not edit_tasks(path, pool):
        problems = [f"{path.name}: no task for the pool {pool.value}; tasks are dealt to three pools by their code"]
    if problems:
        raise SpecError(
            f"workload.edit_tasks: {path.name} cannot be used", problems=problems, hint="docs/workloads.md, code_edit"
        )


@lru_cache(maxsize=3)
def source_files(pool: Pool) -> tuple[SourceFile, ...]:
    """The pool's files, by name: ASCII, with a definition at the top level."""
    order = tuple(Pool)
    found = []
    for path in sorted(_stdlib().glob("*.py")):
        if order[int(sha256(path.name.encode()).hexdigest(), 16) % len(order)] is not pool:
            continue
        data = path.read_bytes()
        if not data.isascii():
            continue
        text = data.decode("ascii").replace("\r\n", "\n")
        definitions = tuple((match.start(), match["name"]) for match in DEFINITION.finditer(text))
        if definitions:
            found.append(SourceFile(name=path.name, text=text, definitions=definitions))
    return tuple(found)


def _stdlib() -> Path:
    return Path(sysconfig.get_path("stdlib"))
