"""Workload `code_edit`: part of a source file and an instruction; the model writes the edited file, greedily.

The files are the standard library's, in three pools by the digest of their names. The prediction that a client sends
along (`workload.prediction`) is not part of these requests: it needs the reference's own answer.
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
from vibeserve.workloads.exact_text import MAX_ATTEMPTS, draw_nonce, fit_middle
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
    if not source_files(pool):
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
        prompt, num_tokens = _draw(workload, generator=generator, pool=pool, tokenizer=tokenizer)
        yield PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            prompt=prompt,
            num_prompt_tokens=num_tokens,
            max_tokens=generator.randint(workload.output_tokens_min, workload.output_tokens_max),
            logprobs=logprobs,
        )


def _draw(workload: Workload, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer) -> tuple[str, int]:
    """One prompt and its number of tokens; excerpts that are too short are drawn again."""
    files = source_files(pool)
    for _ in range(MAX_ATTEMPTS):
        file = generator.choice(files)
        start, name = generator.choice(file.definitions)
        instruction = generator.choice(INSTRUCTIONS).format(name=name, suffix=draw_nonce(generator)[:4])
        wanted = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        excerpt = file.text[start : start + CHARS_PER_TOKEN * wanted]
        prompt, num_tokens = fit_middle(
            f"# {draw_nonce(generator)}\n{instruction}\n\n{file.name}:\n\n",
            excerpt,
            "\nThe edited file:\n\n",
            borders=[match.end() for match in re.finditer(r"\n", excerpt)],
            num_tokens=wanted,
            tokenizer=tokenizer,
        )
        if workload.prompt_tokens_min <= num_tokens <= workload.prompt_tokens_max:
            return prompt, num_tokens
    low, high = workload.prompt_tokens_min, workload.prompt_tokens_max
    raise SpecError(
        f"no source excerpt of {low} to {high} tokens found in {MAX_ATTEMPTS} attempts",
        hint="widen workload.prompt_tokens_min and prompt_tokens_max; cuts fall between lines",
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
