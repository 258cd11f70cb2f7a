"""A workload that has nothing to do with text, through the same generator: its records, its ends, its faults."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from reversal import ReversalServer, answered, bundle_of, cut_after, line_of, numbers, session_on

from vibeserve.benchmark import Contender, interleave, pooled_metrics, window_metrics
from vibeserve.client.arrivals import Replay
from vibeserve.contract import Pool, Record, Request
from vibeserve.core.nouns import LoadPoint
from vibeserve.errors import ContractError, InfraError

LETS_PASS = """async def send(session, request):
    await session.post("/reverse", request.payload)
    return Record(request=request, output="whole")"""


def send(body: str) -> str:
    return "async def send(session, request):\n" + "\n".join(f"    {line}" for line in body.splitlines())


def test_records_hold_what_send_returned_and_the_harness_s_times(tmp_path: Path) -> None:
    lying = send("""at_s = session.now_s()
answer = await session.post("/reverse", request.payload)
return Record(request=request, output=answer.body.decode().split(), marks=((at_s, {"note": [1, None]}),),
              scheduled_s=-7.0, sent_s=-7.0, end_s=1e9)""")
    records = answered(bundle_of(tmp_path, send=lying))
    assert [record.request.request_id for record in records] == ["r-0", "r-1", "r-2"]
    for number, record in enumerate(records):
        assert (record.error, record.output) == (None, ["3", "2", "1", str(number)])
        assert record.marks[0][1] == {"note": [1, None]}
        assert 0 <= record.scheduled_s <= record.sent_s <= record.end_s < 30
        assert record.marks[0][0] <= record.end_s


def test_lines_are_handed_over_as_they_come(tmp_path: Path) -> None:
    for record in answered(bundle_of(tmp_path), delay_s=0.02):
        assert [number for _, number in record.marks] == record.output == record.request.payload["numbers"][::-1]
        times = [at_s for at_s, _ in record.marks]
        assert times == sorted(times)
        assert times[-1] - times[0] >= 0.05, "the server sleeps between its lines"
        assert record.end_s >= times[-1]


def test_a_request_may_take_several_exchanges(tmp_path: Path) -> None:
    twice = send("""first, second = await asyncio.gather(*(session.post("/reverse", request.payload) for _ in range(2)))
third = await session.post("/reverse", {"numbers": [7]})
return Record(request=request, output=[first.body == second.body, third.end_s >= first.end_s, third.body.decode()])""")
    records = answered(bundle_of(tmp_path, send=twice, extra="import asyncio"))
    assert [record.output for record in records] == [[True, True, "7\n"]] * 3
    assert all(record.end_s - record.sent_s >= 5 * 0.002 for record in records)


def test_a_refused_post_is_the_record_s_error_where_send_lets_it_pass_and_may_be_tried_again(tmp_path: Path) -> None:
    records = answered(bundle_of(tmp_path, send=LETS_PASS), requests=numbers(num=2, status=500))
    assert [(record.error, record.output) for record in records] == [("HTTP 500: oops", None)] * 2
    again = send("""try:
    await session.post("/reverse", request.payload)
except SendError:
    answer = await session.post("/reverse", request.payload | {"status": 200})
return Record(request=request, output=answer.body.decode())""")
    records = answered(bundle_of(tmp_path / "..", send=again), requests=numbers(num=2, status=500))
    assert [(record.error, record.output[:4]) for record in records] == [(None, "3\n2\n")] * 2


HELD_S = 60.0
NOTE = "pathlib.Path(__file__).with_name(request.request_id).touch()"
ON_LINE = f"lambda at_s, line: seen.append(line.decode()) or {NOTE}"


def until_first_lines(folder: Path) -> None:
    """Until two requests have had a line each."""
    deadline_s = time.monotonic() + 20
    while not all((folder / name).exists() for name in ("r-0", "r-1")):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("source", "output"),
    [
        (send(f"""seen = []
await session.post("/reverse", request.payload, on_line={ON_LINE})
return Record(request=request, output="whole")"""), None),
        # what came so far, and no error of its own: it was cut all the same
        (send(f"""seen = []
try:
    await session.post("/reverse", request.payload, on_line={ON_LINE})
except SendError as error:
    assert str(error) == "cut"
return Record(request=request, output=seen)"""), ["3"]),
        # somewhere else than in a post
        (send(f"""seen = []
await session.post("/reverse", {{"numbers": [1]}}, on_line={ON_LINE})
await asyncio.sleep(60)"""), None),
    ],
    ids=["passes", "keeps what came", "elsewhere"],
)  # fmt: skip
def test_what_is_in_flight_at_the_end_is_cut(tmp_path: Path, source: str, output: Any) -> None:
    bundle = bundle_of(tmp_path, send=source, extra="import asyncio, pathlib")
    records = cut_after(bundle, lambda: until_first_lines(tmp_path), hold_s=HELD_S)
    assert [(record.error, record.output) for record in records] == [("cut", output)] * 2
    assert all(record.end_s >= record.sent_s for record in records)


def test_a_send_that_tries_again_and_again_does_not_outlive_the_load(tmp_path: Path) -> None:
    stubborn = send("""while True:
    try:
        await session.post("/nowhere", request.payload)
    except SendError:
        pass""")
    started_s = time.monotonic()
    records = cut_after(bundle_of(tmp_path, send=stubborn), lambda: time.sleep(0.3))
    assert [record.error for record in records] == ["cut", "cut"]
    assert time.monotonic() - started_s < 15


def test_a_send_that_refuses_to_be_cancelled_is_given_up(tmp_path: Path) -> None:
    deaf = send("""while True:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        pass""")
    records = cut_after(bundle_of(tmp_path, send=deaf, extra="import asyncio"), lambda: time.sleep(0.3))
    assert [(record.error, record.output) for record in records] == [("cut", None)] * 2


def test_a_send_that_takes_too_long_is_ended_and_its_place_is_taken(tmp_path: Path) -> None:
    slow = send("""if request.request_id == "r-0":
    await asyncio.sleep(60)
await session.post("/reverse", request.payload)
return Record(request=request, output=1)""")
    bundle = bundle_of(tmp_path, send=slow, extra="import asyncio")
    records = answered(bundle, num=6, request_timeout_s=0.3, load=LoadPoint(name="c1", concurrency=1))
    errors = {record.request.request_id: record.error for record in records}
    assert errors == {"r-0": "timed out after 0.3 s"} | {f"r-{n}": None for n in range(1, 6)}


# -- faults of send: name -> (body, the record's error); {here} is the marked line, {send} the line of `send`
FAULTS: dict[str, tuple[str, str]] = {
    "raises": ("return Record(request=request, output=1 / 0)  # raises", "{here}: ZeroDivisionError: division by zero"),
    "raises_in_on_line": (
        """def on_line(at_s, line):
    raise KeyError("frames")  # raises_in_on_line
await session.post("/reverse", {"numbers": [1]}, on_line=on_line)""", "{here}: KeyError: 'frames'",
    ),
    "refuses_in_on_line": (
        """def on_line(at_s, line):
    raise SendError("one is no frame")
await session.post("/reverse", {"numbers": [1]}, on_line=on_line)""", "one is no frame",
    ),
    "body_is_no_json": (
        """await session.post("/reverse", {1, 2})  # body_is_no_json""",
        "{here}: TypeError: Object of type set is not JSON serializable",
    ),
    "no_record": ("return {'output': 1}", "{send}: send returned dict, not Record"),
    "nothing": ("pass", "{send}: send returned NoneType, not Record"),
    "no_json": (
        "return Record(request=request, output={'frame': b'x'})",
        "{send}: send returned a record that is not JSON: bytes is no JSON data",
    ),
    "holds_itself": (
        "output = []\noutput.append(output)\nreturn Record(request=request, output=output)",
        "{send}: send returned a record that is not JSON: Circular reference detected",
    ),
    "too_large": (
        "return Record(request=request, output='x' * (33 << 20))",
        "{send}: send returned a record larger than 32 MiB",
    ),
    "error_is_no_text": (
        "return Record(request=request, error=ValueError('x'))",
        "{send}: send returned an error that is no text: ValueError('x')",
    ),
    "exits": ("raise SystemExit(3)  # exits", "{here}: SystemExit: 3"),
    "cancels_itself": ("raise asyncio.CancelledError", "{send}: send returned nothing: it was cancelled"),
}  # fmt: skip


def test_a_fault_of_send_is_its_record_s_error_and_the_load_goes_on(tmp_path: Path) -> None:
    bodies = {name: send(body).replace("def send(", f"def {name}(") for name, (body, _) in FAULTS.items()}
    chosen = send("return await globals()[request.payload](session, request)")
    bundle = bundle_of(tmp_path, send=chosen, extra="\n\n\n".join(["import asyncio", *bodies.values()]))
    requests = [Request(request_id=f"{lap}-{name}", payload=name) for lap in range(2) for name in FAULTS]
    records = answered(bundle, requests=iter(requests))
    where = line_of(bundle, "def send(")
    expected = {
        name: error.format(send=where, here=line_of(bundle, f"# {name}") if "{here}" in error else "")
        for name, (_, error) in FAULTS.items()
    }
    found = {record.request.request_id: record.error for record in records}
    assert found == {request.request_id: expected[request.payload] for request in requests}
    assert {record.output for record in records} == {None}


def test_a_send_that_is_no_coroutine_is_told(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, send="def send(session, request):\n    return Record(request=request)")
    (record,) = answered(bundle, num=1)
    assert record.error == f"{bundle.file('workload')}: TypeError: object Record can't be used in 'await' expression"


def test_what_a_workload_prints_is_no_record(tmp_path: Path) -> None:
    chatty = send("""print("hello", flush=True)
os.write(1, b"not JSON either\\n")
await session.post("/reverse", request.payload)
return Record(request=request, output=1)""")
    records = answered(bundle_of(tmp_path, send=chatty, extra="import os"))
    assert [(record.error, record.output) for record in records] == [(None, 1)] * 3


# -- types of its own

OWN_TYPES = """import dataclasses
import enum


class Kind(enum.Enum):
    up = "up"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frame:
    at_s: float
    pixels: tuple[int, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class REQUEST(Request):
    kind: Kind = Kind.up
    sizes: tuple[int, int] = (1, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RECORD(Record):
    frames: tuple[Frame, ...] = ()
    best: Frame | None = None
    notes: dict[str, list[float]] = dataclasses.field(default_factory=dict)
"""
OWN_REQUESTS = """def requests(seed, pool):
    for number in range(3):
        yield REQUEST(request_id=f"r-{number}", payload={"numbers": [number]}, sizes=(3, 4))"""
OWN_SEND = send("""assert request.kind is Kind.up and request.sizes == (3, 4), request
await session.post("/reverse", request.payload)
frame = Frame(at_s=0.5, pixels=(1, 2))
return RECORD(request=request, frames=(frame, frame), best=frame, notes={"a": [1, 2.5]})""")


def test_a_workload_s_own_requests_and_records_are_rebuilt_on_both_sides(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path, own=OWN_TYPES, requests=OWN_REQUESTS, send=OWN_SEND)
    records: list[Any] = answered(bundle, requests=bundle.workload.requests(0, Pool.visible))
    assert [record.error for record in records] == [None] * 3
    for record in records:
        assert type(record) is bundle.record_type
        assert type(record.request) is bundle.request_type
        assert record.frames == (record.best, record.best)
        assert (record.best.at_s, record.best.pixels, record.notes) == (0.5, (1, 2), {"a": [1, 2.5]})


def test_a_record_of_another_shape_than_its_own_type_says_where(tmp_path: Path) -> None:
    wrong = send("return RECORD(request=request, best={'at_s': 'soon', 'pixels': [1]})")
    bundle = bundle_of(tmp_path, own=OWN_TYPES, requests=OWN_REQUESTS, send=wrong)
    (record, *_) = answered(bundle, requests=bundle.workload.requests(0, Pool.visible))
    assert record.error == (
        "send returned a RECORD that is none: best: at_s: 'soon' is no float; "
        "{'at_s': 'soon', 'pixels': [1]} is no NoneType"
    )
    plain = send("return Record(request=request)")
    bundle = bundle_of(tmp_path / "..", own=OWN_TYPES, requests=OWN_REQUESTS, send=plain)
    (record, *_) = answered(bundle, requests=bundle.workload.requests(0, Pool.visible))
    assert str(record.error).endswith("send returned Record, not RECORD")


@pytest.mark.parametrize(
    ("own", "error"),
    [
        ("RECORD = dict", "RECORD is <class 'dict'>, no dataclass that extends vibeserve.contract.Record"),
        ("class RECORD(Record):\n    def served(self): ...\nREQUEST = RECORD", "REQUEST is <class"),
        (
            "import dataclasses\n\n@dataclasses.dataclass(frozen=True, kw_only=True)\nclass RECORD(Record):\n"
            "    frames: tuple[int, ...]",
            "RECORD RECORD: no default for frames\n  the record of a failed request holds nothing else",
        ),
        (
            "import dataclasses\nimport pathlib\n\n@dataclasses.dataclass(frozen=True, kw_only=True)\n"
            "class RECORD(Record):\n    file: pathlib.Path = pathlib.Path()",
            "a field of type <class 'pathlib.Path'> cannot be sent as JSON\n  valid: str, int",
        ),
        (
            "import dataclasses\n\n@dataclasses.dataclass(frozen=True, kw_only=True)\nclass RECORD(Record):\n"
            "    file: 'Nowhere' = 1",
            "RECORD: name 'Nowhere' is not defined",
        ),
    ],
)
def test_types_that_cannot_be_sent_are_refused_before_anything_runs(tmp_path: Path, own: str, error: str) -> None:
    with ReversalServer() as server, pytest.raises(ContractError) as caught:
        session_on(server, bundle_of(tmp_path, own=own))
    assert str(caught.value).startswith(error)


# -- its stream of requests


def stream_fault(bundle: Any, requests: Any, *, load: LoadPoint | None = None) -> str:
    with ReversalServer() as server:
        options = {} if load is None else {"load": load}
        session = session_on(server, bundle, requests=requests, **options)
        session.start()
        try:
            with pytest.raises(ContractError) as caught:
                for _ in range(100):
                    session.check()
                    time.sleep(0.02)
        finally:
            session.stop()
    return str(caught.value)


def test_a_fault_of_requests_is_told_with_its_line(tmp_path: Path) -> None:
    raising = """def requests(seed, pool):
    yield Request(request_id="r-0", payload={"numbers": []})
    raise LookupError("no recordings left")  # here"""
    bundle = bundle_of(tmp_path, requests=raising)
    text = stream_fault(bundle, bundle.workload.requests(0, Pool.visible))
    where = line_of(bundle, "# here")
    assert text.startswith(
        f"load session 'load': its stream of requests failed: {where}: LookupError: no recordings left"
    )


@pytest.mark.parametrize(
    ("requests", "error"),
    [
        (iter(["r-0"]), "requests() gave str, not Request"),
        (iter([Request(request_id="r-0", payload={1, 2})]), "TypeError: set is no JSON data"),
    ],
)
def test_what_is_no_request_ends_the_load(tmp_path: Path, requests: Any, error: str) -> None:
    assert error in stream_fault(bundle_of(tmp_path), requests)


# -- arrivals of its own


def arriving(*arrivals_s: float) -> list[Request]:
    return [
        Request(request_id=f"r-{number}", payload={"numbers": [number]}, arrival_s=arrival_s)
        for number, arrival_s in enumerate(arrivals_s)
    ]


def test_a_trace_is_replayed_at_its_speed_and_latencies_count_from_there(tmp_path: Path) -> None:
    load = LoadPoint(name="x4", trace_speed=4.0)
    records = answered(bundle_of(tmp_path), requests=iter(arriving(0.0, 0.4, 0.4, 2.0)), load=load)
    assert [record.scheduled_s for record in records] == [0.0, 0.1, 0.1, 0.5]
    assert [record.request.arrival_s for record in records] == [0.0, 0.4, 0.4, 2.0], "as recorded"
    assert all(record.error is None and record.sent_s >= record.scheduled_s for record in records)


@pytest.mark.parametrize(
    ("arrivals_s", "error"),
    [
        ((1.0, 0.5), "requests(): r-1 has arrival_s 0.5 after 1\n  a load with trace_speed needs arrivals that ascend"),
        ((-1.0,), "requests(): r-0 has arrival_s -1 after 0"),
        ((float("nan"),), "requests(): r-0 has arrival_s nan after 0"),
        ((0.0,) * 1001, "requests(): more than 1000 requests in a row have arrival_s 0"),
    ],
)
def test_arrivals_that_cannot_be_kept_are_refused(arrivals_s: tuple[float, ...], error: str) -> None:
    replay = Replay(1.0)
    with pytest.raises(ContractError) as caught:
        for request in arriving(*arrivals_s):
            replay.due_s(request)
    assert str(caught.value).startswith(error)


def test_a_stream_whose_arrivals_cannot_be_kept_ends_the_load(tmp_path: Path) -> None:
    load = LoadPoint(name="x1", trace_speed=1.0)
    assert "r-1 has arrival_s 0.5 after 1" in stream_fault(bundle_of(tmp_path), iter(arriving(1.0, 0.5)), load=load)


# -- side by side


def test_two_servers_of_it_side_by_side_show_their_scripted_ratio(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path)
    with ReversalServer(delay_s=0.002, name="fast") as fast, ReversalServer(delay_s=0.1, name="slow") as slow:
        rivals = [
            Contender(name=server.name, server=server, session=session_on(server, bundle)) for server in (fast, slow)
        ]
        rows = interleave(rivals, num_pairs=2, window_s=0.5, warmup_s=0.1, seed=1)
        records: list[list[Record]] = [rival.session.stop() for rival in rivals]  # type: ignore[attr-defined]
    rates = [
        window_metrics(own, start_s=part.start_s, end_s=part.end_s, bundle=bundle)["numbers_per_s"]
        for own, row in zip(records, rows, strict=True)
        for part in row
    ]
    # scripted 50 to 1: only the order is asserted
    assert min(rates[:2]) > max(rates[2:])
    assert not [record for own in records for record in own if record.error not in (None, "cut")]
    pooled = pooled_metrics(records[0], windows=[(part.start_s, part.end_s) for part in rows[0]], bundle=bundle)
    assert {"numbers_per_s", "first_p50", "request_throughput", "goodput", "e2el_p50", "num_numbers"} <= set(pooled)


def test_a_workload_that_is_gone_when_the_generator_starts_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    bundle = bundle_of(tmp_path)
    assert bundle.workload.METRICS
    (tmp_path / "workload.py").unlink()
    with ReversalServer() as server:
        load = session_on(server, bundle)
        with pytest.raises(InfraError, match=r"did not start \(exit 1\)\n.*workload\.py: no such file"):
            load.start()


