"""`skills new`: the folder of a new skill, valid as it is written, with everything that its author has to say."""

from __future__ import annotations

from pathlib import Path

from vibeserve.errors import SpecError
from vibeserve.skills.loader import MAX_NAME_CHARS, NAME_PATTERN

NOTE = """\
---
name: {name}
description: What the technique does, in a sentence. Use when a symptom that somebody sees is there.
---

# {title}

## When it applies

- The span or the metric that is too large, and how large it has to be for this to pay.

## How it works

The mechanism, in the field's terms.

```python run
# a small program that shows the mechanism; it runs in `vibeserve skills check`
rows = [3, 1, 2]
assert sorted(rows) == [1, 2, 3]
```

## Invariants

- What must stay true of every reply.

## Failure symptoms

| symptom | cause |
|---|---|
| what is seen | what is wrong |
| what is seen next | what is wrong then |
| what is seen under load | what is wrong then |

## Test

What proves that it is right, with a case that fails where it is wrong.

## Measure

Which metric under which load, beside what.

## Effect

Effect not measured.

## Platforms

Where it differs between CPUs, CUDA and Metal.

## Versions

Which libraries it was checked with, in which versions.

## Sources

https://example.org: a paper, a document or an issue of the technique's authors.
"""
APPLIES = """\
schema_version: 1
# where the knowledge applies: architectures, modalities, hardware, workloads, reuse, prediction, precision
conditions: {}
# spans of a request's time that it is about: queue, prefill, decode.linear, decode.attention, sampling, http ...
relieves: []
# what somebody sees who needs it; routing compares these with a bottleneck's description
symptoms:
  - the first thing that somebody sees
  - another one, in other words
  - what a profile shows
versions: {}
uses: []
"""


def write_draft(name: str, *, folder: Path) -> Path:
    """Write the skill `name` below `folder`; returns its own folder. SpecError for a wrong or taken name."""
    if not NAME_PATTERN.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        raise SpecError(
            f"skills new: '{name}' must be kebab-case with at most {MAX_NAME_CHARS} characters", hint="such as paged-kv"
        )
    own = folder / name
    if own.exists():
        raise SpecError(f"skills new: {own} is there already", hint="choose another name or --dir")
    own.mkdir(parents=True)
    title = name.replace("-", " ").capitalize()
    (own / "SKILL.md").write_text(NOTE.format(name=name, title=title), encoding="utf-8")
    (own / "applies.yaml").write_text(APPLIES, encoding="utf-8")
    return own
