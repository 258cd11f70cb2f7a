"""The six cases: their twin on a CPU, what to reach against whom, and the command that measures it."""

from __future__ import annotations

from dataclasses import dataclass

NO_WORSE = 1.0


@dataclass(frozen=True, kw_only=True)
class Reach:
    """A ratio to reach. `load` may end with `*`: every load of that beginning, each by itself. `against` is a peer, or
    a class, of which the hardest member counts."""

    metric: str
    load: str
    against: str
    min_ratio: float
    command: str
    precision: str = "same_bytes"
    """table of the peers: same_bytes or any"""
    loads: tuple[str, ...] = ()
    """what `load` stands for where nothing was measured yet"""

    def holds(self, load: str) -> bool:
        """Whether it is about this load."""
        return load.startswith(self.load[:-1]) if self.load.endswith("*") else load == self.load


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case study."""

    letter: str
    title: str
    target: str
    reaches: tuple[Reach, ...]

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(reach.metric for reach in self.reaches))


def _chat() -> tuple[Reach, ...]:
    """Output throughput by load, and latencies that may not be worse; at any precision the same bar everywhere."""
    measure = "vibeserve +target=smollm2_cpu workload=chat_sweep baseline=all"
    sweep, free = f"{measure} evaluation=all_loads", f"{measure} evaluation=any_precision evaluation.loads=all"
    rates = ("r0.3", "r0.6", "r0.9", "r1.2")
    found: list[Reach] = []
    for load, bar, loads in (("c1", 1.5, ()), ("c4", 1.5, ()), ("c8", 1.2, ()), ("c16", 1.2, ()), ("r*", 1.2, rates)):
        found += [
            _reach("output_throughput", load, "competent", bar, sweep, loads=loads),
            _reach("ttft_p50", load, "competent", NO_WORSE, sweep, loads=loads),
            _reach("tpot_p50", load, "competent", NO_WORSE, sweep, loads=loads),
            _reach("output_throughput", load, "competent", 1.2, free, precision="any", loads=loads),
        ]
    return tuple(found)


def _reach(
    metric: str, load: str, against: str, min_ratio: float, command: str, *, precision: str = "same_bytes",
    loads: tuple[str, ...] = (),
) -> Reach:  # fmt: skip
    return Reach(
        metric=metric, load=load, against=against, min_ratio=min_ratio, command=command, precision=precision,
        loads=loads,
    )  # fmt: skip


def _edits() -> tuple[Reach, ...]:
    command = "vibeserve +target=code_edit_cpu"
    return (
        _reach("e2el_p50", "edits", "vllm", 6.0, command),
        _reach("e2el_p50", "edits", "vllm_ngram", 2.0, command),
        _reach("e2el_p50", "edits", "transformers_prompt_lookup", 2.0, command),
        _reach("e2el_p50", "useless", "vllm", 0.95, command),
    )


def _prefixes() -> tuple[Reach, ...]:
    command = "vibeserve +target=olmo_cpu"
    return (
        _reach("output_throughput", "o128", "competent", 1.5, command),
        _reach("ttft_p50", "warm", "naive", 20.0, command),
    )


def _speech() -> tuple[Reach, ...]:
    command = "vibeserve +target=moonshine_cpu"
    return (
        _reach("time_to_partial_p50", "20s", "naive", 5.0, command),
        _reach("time_to_partial_p50", "20s", "competent", 1.3, command),
        _reach("realtime_sessions", "c8", "competent", 2.0, command),
    )


def _documents() -> tuple[Reach, ...]:
    command = "vibeserve +target=json_cpu"
    free = "vibeserve +target=json_cpu evaluation=any_precision evaluation.loads=all"
    found: list[Reach] = []
    for load in ("c1", "c8"):
        found.append(_reach("e2el_p50", load, "competent", 2.0, command))
        found.append(_reach("e2el_p50", load, "competent", 2.0, free, precision="any"))
    return tuple(found)


def _images(target: str) -> tuple[Reach, ...]:
    command = f"vibeserve +target={target}"
    return (
        _reach("e2el_p50", "c1", "naive", 6.27, command),
        _reach("e2el_p50", "c1", "competent", 1.2, command),
    )


CASES: tuple[Case, ...] = (
    Case(letter="A", title="chat", target="smollm2_cpu", reaches=_chat()),
    Case(letter="B", title="predicted outputs", target="code_edit_cpu", reaches=_edits()),
    Case(letter="C", title="shared prefixes on a hybrid model", target="olmo_cpu", reaches=_prefixes()),
    Case(letter="D", title="streaming speech", target="moonshine_cpu", reaches=_speech()),
    Case(letter="E", title="constrained JSON", target="json_cpu", reaches=_documents()),
    Case(letter="F", title="text to image", target="showo2_cpu", reaches=_images("showo2_cpu")),
    Case(letter="F", title="text to image token by token", target="janus_cpu", reaches=_images("janus_cpu")),
)
