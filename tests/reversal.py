"""A made-up modality for the tests of the contract: a server that sends a list of numbers backwards, one a line."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vibeserve.client import LoadSession
from vibeserve.contract import Context, Record, Request
from vibeserve.core.nouns import LoadPoint
from vibeserve.modalities import Bundle, BundleRef, open_bundle
from vibeserve.sandbox import tree

C2 = LoadPoint(name="c2", concurrency=2)

WORKLOAD = '''"""Numbers backwards."""

import itertools
import json
import random

from vibeserve.contract import Direction, Metric, Record, Request, SendError, percentile

METRICS = [
    Metric(name="numbers_per_s", unit="numbers/s", direction=Direction.MAX),
    Metric(name="first_p50", unit="s", direction=Direction.MIN),
]


def requests(seed, pool):
    draw = random.Random(f"{seed}-{pool.value}")
    for number in itertools.count():
        yield Request(
            request_id=f"{pool.value}-{seed}-{number}", payload={"numbers": [draw.randrange(1000) for _ in range(4)]}
        )


async def send(session, request):
    marks = []

    def on_line(at_s, line):
        if line:
            marks.append((at_s, json.loads(line)))

    await session.post("/reverse", request.payload, on_line=on_line)
    return Record(request=request, output=[number for _, number in marks], marks=tuple(marks))


def measure(records, windows):
    duration_s = sum(window.end_s - window.start_s for window in windows)
    counted = [at_s for record in records for at_s, _ in record.marks if any(w.holds(at_s) for w in windows)]
    ended = [record for record in records if record.error is None and any(w.holds(record.end_s) for w in windows)]
    first_p50 = percentile([record.marks[0][0] - record.scheduled_s for record in ended], 50)
    found = {"numbers_per_s": len(counted) / duration_s, "num_numbers": len(counted)}
    return found if first_p50 is None else found | {"first_p50": first_p50}
'''

SERVER = '''
import asyncio, json, sys

async def answer(reader, writer):
    head = await reader.readuntil(b"\\r\\n\\r\\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\\r\\n")[0])
    asked = json.loads(await reader.readexactly(length))
    if asked.get("status", 200) != 200 or not head.startswith(b"POST /reverse "):
        writer.write(b"HTTP/1.1 500 X\\r\\nContent-Length: 4\\r\\n\\r\\noops")
        return writer.close()
    writer.write(b"HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n")
    for number in reversed(asked["numbers"]):
        await asyncio.sleep(float(sys.argv[1]))
        writer.write(json.dumps(number).encode() + b"\\n")
        await asyncio.sleep(asked.get("hold_s", 0))
    writer.close()

async def main():
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()

asyncio.run(main())
'''


class ReversalServer:
    """A running server; `delay_s` lies before every number."""

    def __init__(self, *, delay_s: float = 0.002, name: str = "reversal") -> None:
        self.name = name
        argv = [sys.executable, "-I", "-c", SERVER, str(delay_s)]
        self._process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.base_url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def pause(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def cpu_s(self) -> float:
        return tree.cpu_s([self._process.pid])

    outcome = "died"

    def poll(self) -> int | None:
        return self._process.poll()

    def log_tail(self) -> str:
        return ""

    def __enter__(self) -> ReversalServer:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def write_workload(folder: Path, **replaced: str) -> Path:
    """`workload.py` in `folder`, some of its definitions replaced: `send="async def send(...): ..."` and the like.

    What is given under another name is added behind it.
    """
    text = WORKLOAD
    for name, source in replaced.items():
        start = next((at for at in (text.find(f"def {name}("), text.find(f"{name} = ")) if at >= 0), -1)
        if start < 0:
            text += f"\n\n{source}\n"
            continue
        start = text.rfind("\n", 0, start) + 1
        ends = [at for at in (text.find("\n\n\n", start), len(text)) if at >= 0]
        text = f"{text[:start]}{source}{text[min(ends) :]}"
    path = folder / "workload.py"
    path.write_text(text, encoding="utf-8")
    return path


def bundle_of(folder: Path, *, slo: dict[str, float] | None = None, **replaced: str) -> Bundle:
    """The bundle of a target folder that has a workload and nothing else."""
    path = write_workload(folder, **replaced)
    context = Context(model_dir="", target_dir=str(folder), workload={"slo": slo or {}}, tolerances={})
    return open_bundle(BundleRef(reference="", workload=f"file:{path}", check="", faults="", context=context))


def line_of(bundle: Bundle, text: str) -> str:
    """`file:line` of the first line of the workload that holds `text`."""
    path = Path(bundle.file("workload"))
    lines = path.read_text(encoding="utf-8").splitlines()
    return f"{path}:{next(number for number, line in enumerate(lines, start=1) if text in line)}"


def numbers(*, num: int | None = None, **payload: Any) -> Any:
    """Requests of four numbers. Further fields of the payload are the server's: `status`, and `hold_s` after the first
    number."""
    number = 0
    while num is None or number < num:
        yield Request(request_id=f"r-{number}", payload={"numbers": [number, 1, 2, 3], **payload})
        number += 1


def session_on(server: ReversalServer, bundle: Bundle, **options: Any) -> LoadSession:
    """A load of two at a time on `server`."""
    defaults: dict[str, Any] = {"load": C2, "requests": numbers(), "model": "none", "dialect": "vllm"}
    return LoadSession(bundle=bundle, base_url=server.base_url, **(defaults | options))


def answered(
    bundle: Bundle, *, num: int = 3, requests: Any = None, delay_s: float = 0.002, **options: Any
) -> list[Record]:
    """The records of a finite load."""
    with ReversalServer(delay_s=delay_s) as server:
        load = session_on(server, bundle, requests=requests or numbers(num=num), **options)
        load.start()
        try:
            load.wait(timeout_s=30)
        finally:
            records = load.stop()
    return records


def cut_after(bundle: Bundle, wait: Callable[[], None], **payload: Any) -> list[Record]:
    """The records of a load that is ended while its requests are in flight."""
    with ReversalServer() as server:
        load = session_on(server, bundle, requests=numbers(**payload))
        load.start()
        wait()
        return load.stop()
