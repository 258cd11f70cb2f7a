"""What is asked: one vector for one text, by POST /v1/embeddings in the shape of OpenAI's API."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from vibeserve.contract import (
    Context,
    Direction,
    Metric,
    Pool,
    Record,
    Request,
    Role,
    SendError,
    Session,
    Window,
)
from vibeserve.workloads.text_pools import paragraphs

NONCE_HEX_DIGITS = 12
"""48 random bits at the head of every text: no two are ever alike, so nothing can be looked up"""


class Embeddings:
    """Texts of `words_min` to `words_max` words of real English, both ends included."""

    METRICS = (
        Metric(name="embeddings_per_s", unit="1/s", direction=Direction.MAX, role=Role.HEADLINE),
        Metric(name="words_per_s", unit="1/s", direction=Direction.MAX),
    )

    def __init__(self, *, words_min: int, words_max: int) -> None:
        self._words_min = words_min
        self._words_max = words_max

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        """A pure function of its arguments; pools share no paragraph."""
        generator = random.Random(f"embeddings-{pool.value}-{seed}")
        source = [paragraph.split() for paragraph in paragraphs(pool)]
        for number in count():
            nonce = f"{generator.getrandbits(4 * NONCE_HEX_DIGITS):0{NONCE_HEX_DIGITS}x}"
            words: list[str] = []
            num_words = generator.randint(self._words_min, self._words_max)
            while len(words) < num_words:
                words += generator.choice(source)
            text = " ".join([nonce, *words[:num_words]])
            yield Request(request_id=f"{pool.value}-{seed}-{number}", payload={"input": text})

    async def send(self, session: Session, request: Request) -> Record:
        """The record's output is the vector, a list of numbers."""
        body = {"model": session.model, "input": request.payload["input"], "encoding_format": "float"}
        response = await session.post("/v1/embeddings", body)
        try:
            vector = json.loads(response.body)["data"][0]["embedding"]
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise SendError(f"the reply is no embedding: {response.body[:200]!r}") from error
        return Record(request=request, output=vector)

    def measure(self, records: Sequence[Record], windows: Sequence[Window]) -> Mapping[str, float]:
        """Rates of what was finished inside the windows."""
        duration_s = sum(window.end_s - window.start_s for window in windows)
        done = [record for record in records if record.error is None and _is_in(record.end_s, windows)]
        if not done or duration_s <= 0:
            return {}
        num_words = sum(len(record.request.payload["input"].split()) for record in done)
        return {"embeddings_per_s": len(done) / duration_s, "words_per_s": num_words / duration_s}


def _is_in(time_s: float, windows: Sequence[Window]) -> bool:
    return any(window.start_s <= time_s < window.end_s for window in windows)


def configure(context: Context) -> Embeddings:
    """`workload.options` of target.yaml: words_min and words_max."""
    options = context.workload["options"]
    return Embeddings(words_min=int(options["words_min"]), words_max=int(options["words_max"]))
