"""The files of one call: what a client is given, what it may write, and how a template's words are filled with them."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.agents.requests import AgentRequest
from vibeserve.spec import COMMAND_WORDS

_WORD = re.compile(r"\{(" + "|".join(COMMAND_WORDS) + r")\}")
GIVEN = "given"
"""folder of a call that is read-only inside"""
MAX_READ_BYTES = 64 << 20
"""of one file that a client wrote; the end counts"""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One start of a client."""

    request: AgentRequest
    model: str
    base_url: str
    """of the proxy as the client sees it"""
    client_key: str
    """what the client shows to the proxy; worth nothing elsewhere"""
    scratch: Path = field(init=False)
    """written inside, gone afterwards. New each time: nothing that an agent left is stepped into"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "scratch", Path(tempfile.mkdtemp(prefix="client-", dir=self.request.record_dir)))
        shutil.rmtree(self.given, ignore_errors=True)
        for folder in (self.given, self.home, self.config_dir):
            folder.mkdir()
        self.prompt_file.write_text(self.prompt, encoding="utf-8")
        self.schema_file.write_text(json.dumps(dict(self.request.output_schema), indent=1), encoding="utf-8")

    @property
    def prompt(self) -> str:
        return prompt_of(self.request)

    @property
    def given(self) -> Path:
        return self.request.record_dir / GIVEN

    @property
    def prompt_file(self) -> Path:
        return self.given / "prompt.md"

    @property
    def schema_file(self) -> Path:
        return self.given / "schema.json"

    @property
    def home(self) -> Path:
        return self.scratch / "home"

    @property
    def config_dir(self) -> Path:
        return self.scratch / "config"

    @property
    def output_file(self) -> Path:
        return self.scratch / "output.txt"

    @property
    def stderr_file(self) -> Path:
        return self.scratch / "stderr.txt"

    def clear(self) -> None:
        """Remove what the client and its agent wrote for themselves."""
        for folder, names, _ in os.walk(self.scratch):
            for name in names:
                path = os.path.join(folder, name)  # noqa: PTH118 - as deep as an agent likes
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    os.chmod(path, 0o700)  # noqa: PTH101
        shutil.rmtree(self.scratch, ignore_errors=True)

    def fill(self, text: str) -> str:
        """`text` with every word of `COMMAND_WORDS` replaced; what is put in is not looked at again."""
        values = {
            "prompt": self.prompt, "prompt_file": self.prompt_file, "workspace": self.request.workspace,
            "model": self.model, "base_url": self.base_url, "schema_file": self.schema_file,
            "output_file": self.output_file, "config_dir": self.config_dir,
        }  # fmt: skip
        return _WORD.sub(lambda found: str(values[found[1]]), text)


def prompt_of(request: AgentRequest) -> str:
    """The prompt, and after a refused output why it was refused."""
    if not request.feedback:
        return request.prompt
    return (
        f"{request.prompt.rstrip()}\n\n## Your answer was refused\n\n"
        f"You were asked this before. Your answer could not be used: {request.feedback}\n"
        "What you wrote in the workspace is still there. Answer again: end with the JSON document alone.\n"
    )


def read_end(path: Path) -> str:
    """The end of a text; empty where there is none. A link that an agent put in its place is not followed."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as stream:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return ""
        stream.seek(max(0, found.st_size - MAX_READ_BYTES))
        return stream.read().decode("utf-8", errors="replace")
