"""Child process: probe a served API of speech (`python -m ... JOB.json`): its protocol, not its words.

Reads a `ProbeJob`, prints a `ProbeReport`. Words are judged on the timed recordings; here what must be alike is held
alike: a recording in other chunks, beside others, after others, and as a file.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vibeserve.contract import SendError
from vibeserve.core.documents import canonical_json, read_document
from vibeserve.modalities.probe_http import ProbeFailure, expect, expect_error
from vibeserve.modalities.probe_run import MALFORMED, run_check, shape_text
from vibeserve.modalities.probes import ProbeJob, ProbeReport
from vibeserve.modalities.speech import PROBES
from vibeserve.modalities.speech.probe_talk import (
    FORM_HEADERS,
    Talker,
    chunks_of,
    ends_of,
    form_of,
    run,
    samples_of,
    transcribed,
    wav_of,
)
from vibeserve.modalities.speech.wire import CLEAR, COMMIT, SAMPLE_RATE_HZ, append_event

NUM_TRIES = 3
"""recordings that a check may take: rounding turns a near tie of one, a server that mixes up sessions fails with all"""
NUM_ABANDONED = 8
TRANSCRIPTIONS = "/v1/audio/transcriptions"
RATES_HZ = (8000, 24000, 44100, 48000)
ODD_SAMPLES = (600, 5328, 37, 8001)
"""chunk lengths that are no multiple of a frame"""


def check_health(talker: Talker) -> None:
    talker.http.expect_ok("/health")


def check_live(talker: Talker) -> None:
    talker.http.expect_ok("/live")


def check_metrics(talker: Talker) -> None:
    talker.http.expect_metrics()


def check_models(talker: Talker) -> None:
    expect(bool(talker.model), "no model is listed")


def check_session_created(talker: Talker) -> None:
    async def talk() -> None:
        opened = await talker.connect()
        await opened.update(model=talker.model)
        opened.socket.close()

    run(talk())


def check_partials(talker: Talker) -> None:
    """Every chunk gets the transcript of the audio so far, and the last one is the final transcript."""

    async def talk() -> tuple[list[int], list[str], str]:
        opened = await talker.connect()
        await opened.update(model=talker.model)
        payload = talker.recordings[0].payload
        final = await opened.say(list(chunks_of(payload)))
        expect(final.audio_end_ms == payload["duration_ms"], "the final transcript is not of all the audio")
        expect("input_audio_buffer.committed" in opened.heard.kinds, "no input_audio_buffer.committed")
        opened.socket.close()
        return ends_of(opened.heard), [partial["text"] for partial in opened.heard.partials], final.text

    ends, texts, final = run(talk())
    expect(ends == sorted(set(ends)), "partial transcripts are repeated or out of order")
    expect(texts[-1] == final, "the final transcript is not the last partial one of the same audio")


def check_a_b_a(talker: Talker) -> None:
    """The same recording before and after another: nothing of the other stays behind."""

    def attempt(one: Any, other: Any) -> None:
        first, _, again = run(talker.whole(one)), run(talker.whole(other)), run(talker.whole(one))
        expect(first == again, "the same recording gives another transcript after one in between")

    _any_pair(talker, attempt)


def check_concurrent(talker: Talker) -> None:
    """Two at once give each its own transcript."""

    async def both(one: Any, other: Any) -> list[Any]:
        return list(await asyncio.gather(talker.whole(one), talker.whole(other)))

    def attempt(one: Any, other: Any) -> None:
        alone = [run(talker.whole(one)), run(talker.whole(other))]
        expect(run(both(one, other)) == alone, "two recordings at once give other transcripts than one by one")

    _any_pair(talker, attempt)


def check_clear(talker: Talker) -> None:
    """What was cleared is not heard."""

    async def cleared(one: Any, other: Any) -> Any:
        opened = await talker.connect()
        await opened.update(model=talker.model)
        await opened.socket.send(append_event(next(chunks_of(other))))
        await opened.socket.send(CLEAR)
        await opened.until(lambda: opened.heard.has("input_audio_buffer.cleared"), what="input_audio_buffer.cleared")
        said = await opened.say(list(chunks_of(one)))
        opened.socket.close()
        return said

    def attempt(one: Any, other: Any) -> None:
        alone = run(talker.whole(one))
        expect(run(cleared(one, other)) == alone, "audio that was cleared changes the transcript of what follows")

    _any_pair(talker, attempt)


def check_two_items(talker: Talker) -> None:
    """Two commits in one session are two items, and the second knows nothing of the first."""

    async def one_by_one(one: Any, other: Any) -> list[Any]:
        opened = await talker.connect()
        await opened.update(model=talker.model)
        said = [await opened.say(list(chunks_of(payload))) for payload in (one, other)]
        opened.socket.close()
        return said

    def attempt(one: Any, other: Any) -> None:
        alone = [run(talker.whole(one)), run(talker.whole(other))]
        expect(run(one_by_one(one, other)) == alone, "an item's transcript depends on the item before it")

    _any_pair(talker, attempt)


def check_odd_chunks(talker: Talker) -> None:
    """The same audio in chunks that are no whole frames."""

    async def oddly(payload: Any) -> Any:
        opened = await talker.connect()
        await opened.update(model=talker.model)
        samples = samples_of(payload)
        for place, size in _pieces(len(samples)):
            await opened.socket.send(append_event(samples[place : place + size]))
        said = await opened.commit()
        opened.socket.close()
        return said

    def attempt(one: Any, other: Any) -> None:
        expect(run(oddly(one)) == run(talker.whole(one)), "the same audio in odd chunks gives another transcript")

    _any_pair(talker, attempt)


def check_silence(talker: Talker) -> None:
    """Digital silence is audio: it has a transcript of its length, and nothing breaks."""
    import numpy as np

    _completes(talker, [np.zeros(8000, dtype=np.int16)] * 2, what="silence")


def check_clipping(talker: Talker) -> None:
    import numpy as np

    square = np.where(np.arange(8000) // 50 % 2, 32767, -32768).astype(np.int16)
    _completes(talker, [square, square], what="clipped audio")


def check_sample_rates(talker: Talker) -> None:
    """Audio at other usual rates is heard to its end; one that cannot be served is refused, not misheard."""
    import numpy as np

    for rate_hz in RATES_HZ:
        tone = (9000 * np.sin(np.arange(rate_hz // 2) * 2 * np.pi * 330 / rate_hz)).astype(np.int16)
        _completes(talker, [tone, tone], rate_hz=rate_hz, what=f"audio at {rate_hz} Hz")

    async def impossible() -> None:
        opened = await talker.connect(is_strict=False)
        await opened.socket.send(json.dumps(_format(7)))
        await opened.until(lambda: bool(opened.heard.errors), what="error event for a rate of 7 Hz")
        opened.socket.close()

    run(impossible())


def check_bad_events(talker: Talker) -> None:
    """What is wrong is told by an error event, and the session goes on."""
    bad = {
        "an event that is no JSON": "{not json",
        "an event of an unknown type": json.dumps({"type": "no.such.event"}),
        "an event without a type": json.dumps({"audio": ""}),
        "audio that is no base64": json.dumps({"type": "input_audio_buffer.append", "audio": "%%%"}),
        "audio of half a sample": json.dumps({"type": "input_audio_buffer.append", "audio": "AAAA"}),
        "a commit without audio": COMMIT,
    }

    async def talk() -> None:
        opened = await talker.connect(is_strict=False)
        await opened.update(model=talker.model)
        for what, message in bad.items():
            num = len(opened.heard.errors)
            await opened.socket.send(message)
            await opened.until(lambda num=num: len(opened.heard.errors) > num, what=f"error event for {what}")
            expect(
                bool(opened.heard.errors[-1].get("message")) and "type" in opened.heard.errors[-1],
                f"{what}: the error has no message and type",
            )
        await opened.say(list(chunks_of(talker.recordings[0].payload)))
        opened.socket.close()

    run(talk())


def check_disconnect(talker: Talker) -> None:
    """Speakers that go away in the middle must free what they held."""

    async def leave() -> None:
        for _ in range(NUM_ABANDONED):
            opened = await talker.connect()
            await opened.update(model=talker.model)
            await opened.socket.send(append_event(next(chunks_of(talker.recordings[1].payload))))
            opened.socket.fail(SendError("left"))

    run(leave())
    run(talker.whole(talker.recordings[0].payload))


def check_transcription(talker: Talker) -> None:
    """A file has the transcript that its audio has when it is spoken."""

    def attempt(one: Any, other: Any) -> None:
        spoken = run(talker.whole(one))
        expect(transcribed(talker, samples_of(one)) == spoken.text, "a file's transcript is not that of its audio")

    _any_pair(talker, attempt)


def check_transcription_errors(talker: Talker) -> None:
    import numpy as np

    wav = wav_of(np.zeros(1600, dtype=np.int16))
    bodies = {
        "a form without a file": form_of({"model": talker.model}, file=None),
        "a file that is no WAV": form_of({"model": talker.model}, file=b"RIFFnothing"),
        "a file without audio": form_of({"model": talker.model}, file=wav_of(np.zeros(0, dtype=np.int16))),
        "a form that does not end": form_of({"model": talker.model}, file=wav)[:-40],
    }
    for what, body in bodies.items():
        status, _, answer = talker.http.ask("POST", TRANSCRIPTIONS, body=body, headers=FORM_HEADERS)
        expect_error(what, status, _json(answer))
    status, _, answer = talker.http.ask("POST", TRANSCRIPTIONS, body=b"{}")
    expect_error("a body that is no form", status, _json(answer))
    body = form_of({"model": "no-such-model"}, file=wav)
    status, _, answer = talker.http.ask("POST", TRANSCRIPTIONS, body=body, headers=FORM_HEADERS)
    expect_error("an unknown model", status, _json(answer), wanted=404)


def check_unknown_route(talker: Talker) -> None:
    status, _, body = talker.http.ask("GET", "/no-such-route")
    expect_error("an unknown route", status, _json(body), wanted=404)


def check_request_id(talker: Talker) -> None:
    talker.http.expect_request_id(TRANSCRIPTIONS, b"{}")


CHECK_FUNCTIONS: dict[str, Callable[[Talker], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}


def _completes(talker: Talker, chunks: Sequence[Any], *, what: str, rate_hz: int = SAMPLE_RATE_HZ) -> None:
    async def talk() -> None:
        opened = await talker.connect()
        await opened.update(model=talker.model, rate_hz=rate_hz)
        said = await opened.say(chunks, rate_hz=rate_hz)
        expect(said.audio_end_ms == sum(map(len, chunks)) * 1000 // rate_hz, f"{what} is not heard to its end")
        opened.socket.close()

    run(talk())


def _format(rate_hz: int) -> dict[str, Any]:
    form = {"type": "audio/pcm", "rate": rate_hz}
    return {"type": "session.update", "session": {"type": "transcription", "audio": {"input": {"format": form}}}}


def _pieces(num_samples: int) -> list[tuple[int, int]]:
    """(place, size) of pieces of odd sizes, in turn, to the end."""
    found: list[tuple[int, int]] = []
    place = 0
    while place < num_samples:
        size = min(ODD_SAMPLES[len(found) % len(ODD_SAMPLES)], num_samples - place)
        found.append((place, size))
        place += size
    return found


def _any_pair(talker: Talker, attempt: Callable[[Any, Any], None]) -> None:
    """The check holds for one pair of recordings at least."""
    failures: list[ProbeFailure] = []
    payloads = [request.payload for request in talker.recordings]
    for one, other in list(zip(payloads[::2], payloads[1::2], strict=False))[:NUM_TRIES]:
        try:
            return attempt(one, other)
        except ProbeFailure as failure:
            failures.append(failure)
    raise failures[0]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def main(argv: Sequence[str]) -> int:
    job = read_document(Path(argv[0]), ProbeJob)
    deadline_s = time.monotonic() + job.timeout_s
    talker = Talker(job, deadline_s=deadline_s)
    checks = tuple(run_check(name, partial(_detail, name, talker), deadline_s=deadline_s) for name in PROBES.checks)
    sys.stdout.write(canonical_json(ProbeReport(checks=checks)) + "\n")
    return 0


def _detail(name: str, talker: Talker) -> str:
    """Empty when the check holds."""
    try:
        CHECK_FUNCTIONS[name](talker)
    except ProbeFailure as error:
        return str(error)
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {type(error).__name__}"
    except MALFORMED as error:
        return shape_text(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
