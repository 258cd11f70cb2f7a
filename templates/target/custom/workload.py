"""What is asked, and what is measured. The example sends one text and gets one list of numbers back."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from vibeserve.contract import Context, Direction, Metric, Pool, Record, Request, Role, SendError, Session, Window
from vibeserve.workloads.text_pools import paragraphs

NONCE_HEX_DIGITS = 12
"""48 random bits at the head of every text: no two are ever alike, so nothing can be looked up"""


class Features:
    """Texts of `words_min` to `words_max` words of real English, both ends included."""

    METRICS = (Metric(name="texts_per_s", unit="1/s", direction=Direction.MAX, role=Role.HEADLINE),)

    def __init__(self, *, words_min: int, words_max: int) -> None:
        self._words_min = words_min
        self._words_max = words_max

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        """Endless requests, a pure function of its arguments. What is seen while building must not come back later."""
        generator = random.Random(f"features-{pool.value}-{seed}")
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
        """The record's output is what check.py looks at."""
        body = {"model": session.model, "input": request.payload["input"]}
        response = await session.post("/v1/features", body)
        try:
            features = json.loads(response.body)["features"]
        except (ValueError, KeyError, TypeError) as error:
            raise SendError(f"the reply has no features: {response.body[:200]!r}") from error
        return Record(request=request, output=features)

    def measure(self, records: Sequence[Record], windows: Sequence[Window]) -> Mapping[str, float]:
        """Values of METRICS from what was finished inside the windows."""
        duration_s = sum(window.end_s - window.start_s for window in windows)
        done = [record for record in records if record.error is None and _is_in(record.end_s, windows)]
        return {"texts_per_s": len(done) / duration_s} if done and duration_s > 0 else {}


def _is_in(time_s: float, windows: Sequence[Window]) -> bool:
    return any(window.start_s <= time_s < window.end_s for window in windows)


def configure(context: Context) -> Features:
    """`workload.options` of target.yaml: words_min and words_max."""
    options = context.workload["options"]
    return Features(words_min=int(options["words_min"]), words_max=int(options["words_max"]))
