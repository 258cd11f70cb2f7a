"""A load on another machine, as the controller holds it, over a scripted connection."""

from __future__ import annotations

import json
import threading
import time
from types import SimpleNamespace
from typing import Any

from load_samples import requests, text_bundle

from vibeserve.core.nouns import LoadPoint
from vibeserve.remote.servers import RemoteLoad

NUM = 24


class ScriptedHost:
    """Reports one more request at every look, and is slow to answer."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.fed: list[str | None] = []
        self.called: list[str] = []

    def there(self, data: Any) -> Any:
        return data

    def call(self, method: str, **given: Any) -> Any:
        self.called.append(method)
        if method == "load_feed":
            self.fed.append(given["line"])
        if method in ("load_lines", "load_stop"):
            number = len(self.lines)
            if number < NUM:
                document = {"n": number, "scheduled_s": 0.0, "sent_s": 0.0, "end_s": 1.0, "error": None, "record": {}}
                self.lines.append(json.dumps(document).replace(": ", ":").replace(", ", ",") + "\n")
            start = given["start"]
            time.sleep(0.001)
            return self.lines[start:]
        return 0.0


def load_of(host: ScriptedHost) -> RemoteLoad:
    server: Any = SimpleNamespace(host=host, handle="s0", name="s")
    return RemoteLoad(
        server=server, bundle=text_bundle(), dialect="vllm", model="m", load=LoadPoint(name="c4", concurrency=4),
        requests=iter(requests(num=NUM)), seed=0, cpus=(1,), name="load",
    )  # fmt: skip


def test_two_who_look_at_once_lose_no_record() -> None:
    host = ScriptedHost()
    load = load_of(host)
    load.start()
    for _ in range(NUM):
        load.give()
    threads = [threading.Thread(target=lambda: [load.finished() for _ in range(NUM)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [request.request_id for request in load.finished()] == [each.request_id for each in requests(num=NUM)]
    assert len(load.stop()) == NUM and len({record.request.request_id for record in load.stop()}) == NUM


def test_requests_go_as_the_generator_asks_and_the_end_of_the_stream_is_told() -> None:
    host = ScriptedHost()
    load = load_of(host)
    load.start()
    assert host.fed == []
    for _ in range(NUM + 1):
        load.give()
    assert host.fed[-1] is None and [json.loads(line or "")["n"] for line in host.fed[:-1]] == list(range(NUM))


def test_a_pause_is_asked_for_once() -> None:
    host = ScriptedHost()
    load = load_of(host)
    load.start()
    load.pause()
    load.pause()
    assert load.is_paused
    load.resume()
    load.resume()
    assert host.called == ["load_start", "load_pause", "load_resume"] and not load.is_paused
