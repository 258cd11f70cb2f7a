"""The asking side of a request: opened once, found again by a later process, its result taken once."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.agents.edits import apply_edits, record_edits
from vibeserve.agents.hygiene import copy_files, remove_tree
from vibeserve.agents.mailbox.documents import BaseTree, MailboxRequest, MailboxResult, seconds_of, utc_text
from vibeserve.agents.mailbox.folder import BASE, PROMPT, REQUEST, RESULT, RequestFolder
from vibeserve.agents.mailbox.reading import BrokenResult
from vibeserve.agents.requests import AgentRequest
from vibeserve.core.documents import digest_of, digest_tree, read_document, write_document, write_text_atomic
from vibeserve.errors import AgentInfraError, RefusedError

SETTLE_S = 2.0
"""a result that is no JSON may be one that is being written; it is looked at again until it is as old as that"""
NUMBERED = re.compile(r"(?:request|result)-(\d+)\.json")


@dataclass
class Asking:
    """One request and the state of its folder. `current` is what is asked, as far as it was opened."""

    folder: RequestFolder
    request: AgentRequest
    deadline_s: float
    current: MailboxRequest | None = None

    def open(self) -> MailboxRequest:
        """The request in its folder: the one that is there where the same is asked, else a new try."""
        self.folder.path.mkdir(parents=True, exist_ok=True)
        with self.folder.locked():
            base = {name: digest for name, digest in digest_tree(self.request.workspace).items() if ":" not in digest}
            digest = self._digest(base)
            found = self._again(digest)
            if found is None:
                asked = self._new_try(digest, base)
                self._place(base)
                return self._write(self._fresh(asked))
            if found.state == "open":
                self._place(base)
            self.current = found
            return found

    def take(self) -> MailboxResult | None:
        """The valid result, from now on taken, and its edits made in the request's workspace; None where there is none.

        A result that is not valid is set aside, and `refused` of the request says why. AgentInfraError (lasting) where
        the request was withdrawn.
        """
        with self.folder.locked():
            result = self._take()
        if result is not None and self.request.is_writable:
            self._edit(result)
        return result

    def take_or_expire(self) -> MailboxResult | None:
        """`take` for the last time: without a result the request is expired."""
        with self.folder.locked():
            result = self._take()
            if result is None:
                self._write(replace(self._asked, state="expired", why=f"its deadline was {self._asked.deadline_at}"))
        if result is not None and self.request.is_writable:
            self._edit(result)
        return result

    @property
    def _asked(self) -> MailboxRequest:
        assert self.current is not None, "opened first"
        return self.current

    def _digest(self, base: Mapping[str, str]) -> str:
        request = self.request
        return digest_of({
            "role": request.role, "prompt": request.prompt, "feedback": request.feedback,
            "output_schema": dict(request.output_schema), "is_writable": request.is_writable, "base": dict(base),
        })  # fmt: skip

    def _again(self, digest: str) -> MailboxRequest | None:
        """The same request, asked before: by an earlier process of this run, which may have taken its result."""
        current = self.folder.read()
        if current is not None and current.digest == digest:
            if self._is_taken(current.tries):
                return self._write(replace(current, state="done", why=""))
            is_late = seconds_of(current.deadline_at) < time.time() and not self.folder.has_result
            return self._write(self._fresh(current)) if is_late or current.state != "open" else current
        for number in reversed(self._numbers()):
            earlier = self.folder.read(f"request-{number}.json")
            if earlier is not None and earlier.digest == digest and self._is_taken(number):
                return earlier
        return None

    def _fresh(self, request: MailboxRequest) -> MailboxRequest:
        now_s = time.time()
        return replace(
            request, state="open", why="", made_at=utc_text(now_s), deadline_at=utc_text(now_s + self.deadline_s)
        )

    def _new_try(self, digest: str, base: Mapping[str, str]) -> MailboxRequest:
        current = self.folder.read()
        if current is not None:
            self._put_away(current, is_base_other=current.base_digest != digest_of(dict(base)))
        request = self.request
        return MailboxRequest(
            key=request.key, role=request.role, tries=max([0, *self._numbers()]) + 1, state="open", made_at="",
            deadline_at="", workspace=str(self.folder.workspace), is_writable=request.is_writable,
            read_only=[str(path) for path in request.read_only], output_schema=dict(request.output_schema),
            feedback=request.feedback, digest=digest, base_digest=digest_of(dict(base)),
        )  # fmt: skip

    def _put_away(self, current: MailboxRequest, *, is_base_other: bool) -> None:
        """Keep what was asked before under its number."""
        if self._is_taken(current.tries):
            current = replace(current, state="done", why="")
        elif current.state == "open":
            current = replace(current, state="withdrawn", why="the run asks something else under the same key")
        write_document(self.folder.path / f"request-{current.tries}.json", current)
        if self.folder.has_result:
            self._set_aside()
        is_repair = current.state == "done" and bool(self.request.feedback)
        if is_base_other and not is_repair and self.folder.workspace.exists():
            kept = self.folder.path / f"workspace-{current.tries}"
            remove_tree(kept)
            self.folder.workspace.rename(kept)

    def _place(self, base: Mapping[str, str]) -> None:
        """The prompt and the workspace, where they are not there already: somebody may be at work in it."""
        folder = self.folder
        write_text_atomic(folder.path / PROMPT, self._prompt())
        if not folder.workspace.is_dir():
            draft = folder.path / ".workspace.draft"
            remove_tree(draft)
            copy_files(self.request.workspace, draft, names=base)
            draft.rename(folder.workspace)
        write_document(folder.path / BASE, BaseTree(files=dict(base)))

    def _prompt(self) -> str:
        """The prompt, which names the run's workspace, with the copy of it in its place."""
        place = re.escape(str(self.request.workspace))
        return re.sub(rf"{place}(?![\w-]|\.\w)", lambda _: str(self.folder.workspace), self.request.prompt)

    def _take(self) -> MailboxResult | None:
        asked = self._asked
        on_disk = self.folder.read()
        if on_disk is not None and on_disk.state == "withdrawn" and on_disk.tries == asked.tries:
            raise AgentInfraError(f"request '{asked.key}' was withdrawn: {on_disk.why}", is_lasting=True)
        if self._is_taken(asked.tries):
            return read_document(self._taken_path(asked.tries), MailboxResult)
        try:
            result = self.folder.read_result(asked)
            if result is not None and asked.is_writable:
                self._record(result)
        except BrokenResult as broken:
            if broken.is_partial and not self._is_settled():
                return None
            self._set_aside()
            self._write(replace(asked, refused=str(broken)))
            return None
        if result is not None:
            (self.folder.path / RESULT).rename(self._taken_path(asked.tries))
            self._write(replace(asked, state="done", refused=""))
        return result

    def _record(self, result: MailboxResult) -> None:
        """Keep the workspace's edits with the result. BrokenResult where they are not what was submitted."""
        staged = self.folder.path / ".workspace.taken"
        try:
            tidied = self.folder.inspect()
        except RefusedError as error:
            raise BrokenResult(str(error).splitlines()[0]) from None
        if tidied.refusals:
            raise BrokenResult("; ".join(refusal.text for refusal in tidied.refusals))
        remove_tree(staged)
        copy_files(self.folder.workspace, staged, names=tidied.files)
        if result.tree_digest not in ("", digest_of(digest_tree(staged))):
            raise BrokenResult("the workspace was changed after it had been submitted; submit again")
        record_edits(self.request.workspace, staged, self._edits_path(result.tries))
        remove_tree(staged)

    def _edit(self, result: MailboxResult) -> None:
        apply_edits(self._edits_path(result.tries), self.request.workspace)

    def _is_settled(self) -> bool:
        try:
            age_s = time.time() - (self.folder.path / RESULT).lstat().st_mtime
        except FileNotFoundError:
            return False
        return not 0 <= age_s < SETTLE_S

    def _set_aside(self) -> None:
        number = 1
        while (self.folder.path / f"refused-{number}.json").exists():
            number += 1
        (self.folder.path / RESULT).rename(self.folder.path / f"refused-{number}.json")

    def _write(self, request: MailboxRequest) -> MailboxRequest:
        write_document(self.folder.path / REQUEST, request)
        self.current = request
        return request

    def _is_taken(self, tries: int) -> bool:
        return self._taken_path(tries).is_file()

    def _taken_path(self, tries: int) -> Path:
        return self.folder.path / f"result-{tries}.json"

    def _edits_path(self, tries: int) -> Path:
        return self.folder.path / f"edits-{tries}"

    def _numbers(self) -> list[int]:
        found = (NUMBERED.fullmatch(path.name) for path in self.folder.path.iterdir())
        return sorted({int(match[1]) for match in found if match})
