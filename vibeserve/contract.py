"""The contract of a target folder: what its `reference.py`, `workload.py`, `check.py` and `faults.py` define.

Only the standard library is imported here, so that these files can import it anywhere. The built-in modalities
(`vibeserve/modalities/`) are written to the same contract; the framework has no other way in. `docs/contract.md` is the
page about it.

    reference.py   load(path, device, dtype) -> Reference                       what is right
    workload.py    requests, send, METRICS, measure (see `Workload`)              what is asked and what is measured
    check.py       compare(expected, record) -> [Distance], LIMITS (see `Check`)   how far a reply is from what is right
    faults.py      FAULTS: three wrong outputs or more, and one noisy one        proof that the check can refuse

`workload.py`, `check.py` and `faults.py` are used as they are, or define `configure(context)` that returns the object
to use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

CUT = "cut"
"""error of a record, and text of a SendError, where the load ended first"""
CLOSED = "connection lost before the end of the reply"
"""text of a SendError where the server closed the connection in the middle of an answer"""
MIN_SAMPLES = {50: 5, 99: 662}
"""fewest samples of a percentile; 662 is the floor of MLPerf's early stopping"""


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Nearest-rank percentile 50 or 99, or None where the samples are too few for it or it is infinite.

    A failed request's latency is `math.inf`: where the percentile falls on one there is none.
    """
    if len(values) < MIN_SAMPLES[percent]:
        return None
    value = sorted(values)[math.ceil(percent / 100 * len(values)) - 1]
    return value if math.isfinite(value) else None


def absent_text(metric: str) -> str:
    """What stands where `metric` has no value: a percentile that the samples do not support is too few of them."""
    for percent, needed in MIN_SAMPLES.items():
        if metric.endswith(f"_p{percent}"):
            return f"too few (p{percent} needs {needed} samples, the slowest not failed)"
    return "no value"


class Pool(Enum):
    """Disjoint stocks of inputs: what may be seen while building never returns in selection or certification."""

    visible = "visible"
    selection = "selection"
    certification = "certification"


class Direction(Enum):
    MAX = "max"
    MIN = "min"


class Role(Enum):
    HEADLINE = "headline"
    GUARD = "guard"
    DIAGNOSTIC = "diagnostic"


class Statistic(Enum):
    """What a limit holds: a figure over all values of one distance, of all replies together."""

    max = "max"
    mean = "mean"
    p99 = "p99"
    share_at_least = "share_at_least"
    """share of the values that are at least `Limit.at`"""


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A typed quantity. `ratio` of two values is always turned so that > 1 means better."""

    name: str
    unit: str
    direction: Direction
    role: Role = Role.DIAGNOSTIC
    """of a metric that no goal names"""

    def ratio(self, value: float, *, against: float) -> float:
        """How many times better `value` is than `against`."""
        return value / against if self.direction is Direction.MAX else against / value


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. `payload` is JSON data: all that a server and the reference need to know."""

    request_id: str
    payload: Any = None
    arrival_s: float = 0.0
    """a load that replays arrivals: when it is due, in seconds after the load's start"""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What the client saw of one request. Times are the harness's, in seconds of the load; `send` leaves them alone.

    `error` is None for a finished reply, `cut` when the load ended first, else the failure's text.
    """

    request: Request
    output: Any = None
    """JSON data: the reply's content; what `check.compare` looks at"""
    marks: tuple[tuple[float, Any], ...] = ()
    """(seconds, JSON data): parts of a streamed reply as they came, where `send` noted them"""
    scheduled_s: float = 0.0
    """when it was due; latencies count from here"""
    sent_s: float = 0.0
    end_s: float = 0.0
    error: str | None = None
    load_id: str = ""
    """the harness's: which load it belongs to; every load has a clock of its own"""

    @property
    def served(self) -> Any:
        """What the reference scores: `output`, unless a workload's own type of record says otherwise."""
        return self.output

    @property
    def waited_s(self) -> float | None:
        """Seconds that the client waited for output, of a workload that paces its requests itself (speech in real
        time), where the whole request's time says nothing; None = from `sent_s` to `end_s`."""
        return None


@dataclass(frozen=True, kw_only=True)
class Response:
    """A whole HTTP answer."""

    status: int
    body: bytes
    end_s: float
    """last byte"""


class SendError(Exception):
    """The exchange failed: connection, HTTP status, timeout, or `cut` by the end of the load.

    `on_line` and `send` may raise it, too: its text becomes the record's error as it is.
    """


class Socket(Protocol):
    """The client's end of a WebSocket that `Session.connect` opened."""

    async def send(self, text: str) -> float:
        """Send one text message; returns the seconds at which it was handed over. SendError once it is closed."""
        ...

    async def until(self, holds: Callable[[], bool]) -> None:
        """Return when `holds()` does; it is asked again after every message. SendError where the connection ends
        before."""
        ...

    def close(self) -> None:
        """Say goodbye. `send` of a workload does so when it has all that it wants."""
        ...


class Session(Protocol):
    """The client's side of one load, inside the load generator; every `send` has its own.

    A request may take several posts, at once or one after the other, over a connection each. Its `sent_s` is the first
    one's start, its `end_s` the last byte of the last one.
    """

    @property
    def model(self) -> str:
        """Name of the model that the server lists."""
        ...

    @property
    def dialect(self) -> str:
        """How the server speaks: `vllm` (what generated runtimes speak, too), `transformers`, `llama_cpp`."""
        ...

    def now_s(self) -> float:
        """Seconds of the load; stands still while the load is paused."""
        ...

    async def post(self, path: str, body: Any, *, on_line: Callable[[float, bytes], None] | None = None) -> Response:
        """POST `body` as JSON. With `on_line` every line of the body is handed over as it comes, with the seconds at
        which it was read, and the answer's `body` is empty. Raises SendError for a status other than 200."""
        ...

    async def connect(self, path: str, *, on_message: Callable[[float, str], None]) -> Socket:
        """Open a WebSocket. Every text message is handed over as it comes, with the seconds at which it was read.
        Raises SendError where the server opens none."""
        ...


@dataclass(frozen=True, kw_only=True)
class Window:
    """Part of a load, in seconds of the load: [start_s, end_s)."""

    start_s: float
    end_s: float

    def holds(self, at_s: float) -> bool:
        return self.start_s <= at_s < self.end_s


@dataclass(frozen=True, kw_only=True)
class Context:
    """What `configure(context)` is told."""

    model_dir: str
    """folder of the materialised model (custom: of its source's files); empty where there is none yet (`check`)"""
    target_dir: str
    """folder of the target; empty for a target without one"""
    workload: Mapping[str, Any]
    """the spec's `workload`, as JSON data; a folder's own settings are in its `options`"""
    tolerances: Mapping[str, Any]
    """the spec's `evaluation.tolerances`, as JSON data; a folder's own are in its `limits`"""


class Workload(Protocol):
    """`workload.py`.

    Optional: `shortened(request)`, a cheap version of a request for warm-ups; `audited(request)`, a shorter one for
    audits of times, which send dozens one after the other; `plain(request)`, a request without what
    only the check asks for (such as log-probabilities), for servers that are measured and not judged;
    `prepared(requests)`, those of a load with what takes time to make, the first of them made before it returns;
    `REQUEST` and
    `RECORD`, dataclasses that extend the contract's where JSON data in `payload` and `output` is not enough. Every
    field of their own has a default (the record of a failed request holds nothing else) and is made of str, int, float,
    bool, None, Any, enums, dataclasses, and tuples, lists and dicts of these. Such a RECORD may have a class method
    `of_output(request, output)`: the record of a server that sent this output.
    """

    METRICS: Sequence[Metric]
    """beyond those that the framework knows of every workload: request_throughput, goodput, e2el_p50, e2el_p99,
    peak_memory, startup. One that has the name of one of the first four replaces the framework's"""

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        """Endless requests, a pure function of the arguments. No two pools or seeds share an input."""
        ...

    async def send(self, session: Session, request: Request) -> Record:
        """Send one request and return what came back. SendError may pass through: it becomes the record's error."""
        ...

    def measure(self, records: Sequence[Record], windows: Sequence[Window]) -> Mapping[str, float]:
        """Values of METRICS over the union of disjoint windows, finite and not negative; `percentile` is the
        framework's own. A value that there are too few samples for is left out: missing never means good. `records`
        are those of one load that were due before the last window's end and ended after some window's start. Names
        that begin with `num_` or `mean_` are diagnostics and need no entry in METRICS."""
        ...


class Reference(Protocol):
    """What `reference.load` returns. `score` and `score_many` are optional."""

    def run(self, request: Request) -> Any:
        """The right output, as JSON data of the shape that a record's `output` has."""
        ...

    def score(self, request: Request, output: Any) -> Any:
        """Instead of `run`, where many outputs are right: what the reference thinks of the one that was served."""
        ...

    def score_many(self, pairs: Sequence[tuple[Request, Any]]) -> Sequence[Any]:
        """`score` of several at once, in their order."""
        ...


@dataclass(frozen=True, kw_only=True)
class Distance:
    """How far one reply is from what is right, in one respect; a value per token, frame or vector, or one for all."""

    name: str
    values: tuple[float, ...]
    unit: str = ""
    missing: str = ""
    """why there are no values though there should be: refuses"""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """At most `bound`, over the values of one distance of all replies. No value at all refuses, too."""

    distance: str
    statistic: Statistic
    bound: float
    at: float = 0.0
    """threshold of share_at_least"""
    reason_class: str = ""
    """type of the refusal; empty = `wrong_` and the distance's name"""


@dataclass(frozen=True, kw_only=True)
class ReplyDistances:
    """One reply's distances."""

    request_id: str
    distances: tuple[Distance, ...]

    def values(self, name: str) -> tuple[float, ...]:
        return tuple(value for distance in self.distances if distance.name == name for value in distance.values)


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A reason to refuse: `reason_class` is its type, the text holds counts and limits, never inputs."""

    reason_class: str
    text: str
    gate: str = "accuracy"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What `judge` found: reasons to refuse, and figures to be printed."""

    findings: tuple[Finding, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


class Check(Protocol):
    """`check.py`. `inspect` and `judge` are optional.

    Optional as well: `group(record)`, a name for its kind of request (a sample of the replies holds every kind in its
    share, at least one), and `same(first, again)`, distances between two records of one request. Without it the probes
    use `compare(first.output, again)`, which fits wherever the reference has no `score`.
    """

    LIMITS: Sequence[Limit]

    def compare(self, expected: Any, record: Record) -> Sequence[Distance]:
        """`expected` is what the reference's `run`, or `score`, returned for the record's request (and output)."""
        ...

    def inspect(self, records: Sequence[Record]) -> Sequence[Finding]:
        """What replies show on their face, without a reference: lengths, formats, copies."""
        ...

    def judge(self, replies: Sequence[ReplyDistances]) -> Judgement:
        """Rules over all replies together, beyond LIMITS."""
        ...


class References(Protocol):
    """Loaded references by dtype, for faults."""

    def exact(self) -> Reference:
        """In float32."""
        ...

    def rounded(self) -> Reference:
        """In bfloat16: honest noise."""
        ...


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One way of being wrong, or (`is_wrong` false) of being right with noise."""

    name: str
    is_wrong: bool
    make: Callable[[References, Request, Request], Any]
    """(references, request, another request) -> the output that a faulty server would send for `request`"""


class ReferenceModule(Protocol):
    """`reference.py`."""

    def load(self, path: str, device: str, dtype: str) -> Reference: ...


class FaultsModule(Protocol):
    """`faults.py`. At least three faults with `is_wrong`, and one without.

    Optional: `shortened(request)`, a cheap version of a request to try them on.
    """

    FAULTS: Sequence[Fault]
