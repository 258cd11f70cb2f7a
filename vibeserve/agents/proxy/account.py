"""The account of one exchange: what it took, how it ended, and its line in the record."""

from __future__ import annotations

import time
from typing import Any

from vibeserve.agents.ledger import Spend
from vibeserve.agents.proxy.books import Books
from vibeserve.agents.proxy.failures import error_in, failure_of, message_of, told_failure
from vibeserve.agents.proxy.metering import Meter, Metered
from vibeserve.agents.proxy.record import MAX_BODY_BYTES, PROXY, UPSTREAM, Recorder, body_of
from vibeserve.agents.proxy.redaction import Redactor
from vibeserve.agents.proxy.sse import parse_json
from vibeserve.agents.proxy.upstream import Answer, Outgoing, UpstreamError
from vibeserve.errors import AgentInfraError


class Account:
    """Of one exchange that was let through, or refused. One of `refused`, `failed`, `answered_with_error` and
    `begin ... end` is called; `close` always, and whatever is still open then was cut off by the client."""

    def __init__(self, *, outgoing: Outgoing, books: Books, recorder: Recorder, redactor: Redactor) -> None:
        self.outgoing = outgoing
        self._books = books
        self._recorder = recorder
        self._redactor = redactor
        self._started_s = time.monotonic()
        self._meter: Meter | None = None
        self._spend: Spend | None = None
        self._is_counted = False
        self._is_recorded = False
        self._status = 0
        self._content_type = ""
        self._body = bytearray()
        self._num_body_bytes = 0

    @property
    def _is_metered(self) -> bool:
        return self.outgoing.route.is_metered

    def refused(self, status: int, body: Any) -> None:
        """A cap, or the number of turns: never sent."""
        self._status, self._content_type = status, "application/json"
        self._keep(bytes(body))
        self._record(answered_by=PROXY, is_whole=True, note="refused before it was sent")

    def failed(self, error: UpstreamError, body: Any) -> None:
        """The API gave no answer; ours says so."""
        self._ended(AgentInfraError(str(error), is_lasting=error.is_lasting))
        self._status, self._content_type = error.status, "application/json"
        self._keep(bytes(body))
        self._record(answered_by=PROXY, is_whole=True, note=str(error))

    def answered_with_error(self, answer: Answer, body: bytes) -> None:
        """The API refused the request: nothing was spent."""
        self._take_head(answer)
        self._keep(body)
        where = self.outgoing.upstream.base_url
        failure = failure_of(answer.status, answer.headers, body, where=where)
        text = message_of(error_in(parse_json(body))) or f"{where} answered {answer.status}"
        self._ended(failure, refusal="" if failure is not None else text)
        self._record(answered_by=UPSTREAM, is_whole=True)

    def begin(self, answer: Answer) -> None:
        """An answer begins."""
        self._take_head(answer)
        is_stream = self._content_type.startswith("text/event-stream")
        self._meter = Meter(self.outgoing.route.dialect, is_stream=is_stream)

    def feed(self, data: bytes) -> None:
        """A piece of it. As soon as it has told its usage it counts."""
        assert self._meter is not None
        self._keep(data)
        self._meter.feed(data)
        if self._meter.is_final:
            self._count()

    def end(self) -> None:
        """It is complete."""
        self._finish(was_cut=False)

    def broken_off(self, error: UpstreamError) -> None:
        """The API broke it off."""
        self._finish(was_cut=True, failure=AgentInfraError(str(error)), note=str(error))

    def close(self) -> None:
        """The exchange is over, however that came."""
        if not self._is_recorded and self._meter is not None:
            self._finish(was_cut=True, note="the client went away")
        elif not self._is_recorded:
            self._record(answered_by=PROXY, is_whole=False, note="the client went away before there was an answer")
        if self._is_metered and not self._is_counted:
            self._leave()

    def _leave(self) -> None:
        self._is_counted = True
        self._books.num_in_flight -= 1

    def _take_head(self, answer: Answer) -> None:
        self._status = answer.status
        self._content_type = answer.headers.get("Content-Type", "")

    def _keep(self, data: bytes) -> None:
        self._num_body_bytes += len(data)
        self._body += data[: max(0, MAX_BODY_BYTES - len(self._body))]

    def _count(self) -> Metered:
        assert self._meter is not None
        metered = self._meter.finish(num_request_chars=len(self.outgoing.body))
        is_answered = metered.error is None or not metered.is_estimate or metered.num_output_chars > 0
        is_answered = is_answered and not self._foreign_type
        if self._is_metered and not self._is_counted and is_answered:
            self._leave()
            self._spend = self._books.count(metered, model=self._model(metered))
        return metered

    @property
    def _foreign_type(self) -> str:
        """The type of a body that no API of models sends, such as a gateway's error page; empty for what one sends."""
        kind = self._content_type.partition(";")[0].strip().lower()
        is_known = kind in ("", "application/json", "text/event-stream") or kind.endswith("+json")
        return "" if is_known else kind

    def _model(self, metered: Metered) -> str:
        """As the request names it; where that could not be read, as the answer does."""
        is_unread = self.outgoing.document is None and not self.outgoing.route.model
        return (metered.model if is_unread else "") or self.outgoing.model

    def _finish(self, *, was_cut: bool, failure: AgentInfraError | None = None, note: str = "") -> None:
        metered = self._count()
        refusal = ""
        if failure is None and self._foreign_type:
            where = self.outgoing.upstream.base_url
            text = f"{where} answered {self._status} with {self._foreign_type}, which is no answer of its API"
            failure = AgentInfraError(text)
        if failure is None and metered.error is not None:
            failure = told_failure(metered.error, where=self.outgoing.upstream.base_url)
            refusal = "" if failure is not None else message_of(metered.error)
        self._ended(failure, refusal=refusal)
        self._record(answered_by=UPSTREAM, is_whole=not was_cut, note=note)

    def _ended(self, failure: AgentInfraError | None, *, refusal: str = "") -> None:
        if self._is_metered:
            self._books.last_failure = failure
            self._books.last_refusal = refusal

    def _record(self, *, answered_by: str, is_whole: bool, note: str = "") -> None:
        self._is_recorded = True
        request, request_note = body_of(self.outgoing.body, name="request", redactor=self._redactor)
        response, response_note = body_of(
            bytes(self._body), name="answer", redactor=self._redactor, num_bytes=self._num_body_bytes
        )
        spend = self._spend
        books = self._books
        try:
            self._recorder.add(
                role=books.role, key=books.key, backend=books.backend, dialect=self.outgoing.route.dialect,
                model=spend.model if spend is not None else self.outgoing.model, path=self.outgoing.route.path,
                is_metered=self._is_metered, answered_by=answered_by, request=request, status=self._status,
                content_type=self._content_type, response=response, is_whole=is_whole and not response_note,
                note="; ".join(text for text in (note, request_note, response_note) if text),
                usage=None if spend is None else spend.usage, usd=None if spend is None else spend.usd,
                is_estimate=spend is not None and spend.is_estimate, seconds=time.monotonic() - self._started_s,
            )  # fmt: skip
        except OSError as error:
            books.broken = error
