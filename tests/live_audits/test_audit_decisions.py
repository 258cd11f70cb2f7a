"""What the audits say of times and records: each refuses its own case and passes an honest one. No server, no clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from load_samples import PIECES, reply

from vibeserve.accuracy import Scores
from vibeserve.contract import Distance, Finding, Judgement, Limit, Record, ReplyDistances, Request, Statistic
from vibeserve.core.manifest import MetricResult
from vibeserve.core.nouns import Direction, Role
from vibeserve.live_audits import Audited, Start, judge_possible, judge_starts, left_out
from vibeserve.live_audits.decisions import after_first_s, block_s, decode_s, first_output_s, reply_s, speed_up
from vibeserve.live_audits.driving import BlockStream
from vibeserve.live_audits.duplicates import judge_duplicates
from vibeserve.live_audits.idle import judge_idle
from vibeserve.live_audits.nouns import audited, confirmed, not_applicable
from vibeserve.live_audits.off_distribution import Shape, judge_shapes, shapes_of
from vibeserve.live_audits.other_seeds import judge_seeds
from vibeserve.live_audits.perturbed import judge_damaged, lost_accuracy
from vibeserve.live_audits.prefixes import judge_prefixes
from vibeserve.live_audits.repeats import judge_repeats, ordered
from vibeserve.live_audits.restart import judge_restart
from vibeserve.live_audits.soak import Soaked, judge_soak, output_times
from vibeserve.live_audits.traffic import Lengths, commonest, shape_of
from vibeserve.plan import Ceiling
from vibeserve.plan.nouns import COMPUTE, DECLARED, MEASURED, UNBOUNDED_GB_S
from vibeserve.schedules import AuditScope

NOISE = (1.0, 1.04, 0.97, 1.02, 0.99, 1.05, 0.96, 1.01)


def answered(seconds: float, *, first_s: float | None = None, at_s: float = 0.0, error: str | None = None) -> Record:
    """A reply that took so long, its first output so long."""
    first = seconds / 2 if first_s is None else first_s
    chunks = [(at_s + first, PIECES[0]), (at_s + seconds, PIECES[1])]
    return replace(reply(chunks, scheduled_s=at_s, error=error), end_s=at_s + seconds)


def in_turns(
    slow_s: Sequence[float], fast_s: Sequence[float], names: tuple[str, str]
) -> tuple[list[Record], list[str]]:
    records = [answered(seconds) for pair in zip(slow_s, fast_s, strict=True) for seconds in pair]
    return records, list(names) * len(slow_s)


def reasons(found: Audited) -> list[str]:
    assert all(refusal.gate == "audit" and refusal.text for refusal in found.refusals)
    assert found.result.passed is not bool(found.refusals)
    return [refusal.reason_class for refusal in found.refusals]


# -- ratios


def test_a_speed_up_is_that_of_pairs() -> None:
    gain = speed_up([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], seed=0)
    assert gain is not None and gain.ratio == pytest.approx(2.0)


@pytest.mark.parametrize("bad", [math.inf, math.nan, 0.0, -1.0])
def test_a_time_that_is_none_gives_no_ratio(bad: float) -> None:
    assert speed_up([1.0, 1.0, bad], [1.0, 1.0, 1.0], seed=0) is None
    assert speed_up([1.0, 1.0, 1.0], [1.0, bad, 1.0], seed=0) is None


def test_too_few_pairs_give_no_ratio() -> None:
    assert speed_up([1.0, 1.0], [1.0, 1.0], seed=0) is None
    assert speed_up([1.0] * 4, [1.0] * 3, seed=0) is None


def test_times_of_a_record() -> None:
    record = answered(2.0, first_s=0.5, at_s=10.0)
    assert (reply_s(record), first_output_s(record), after_first_s(record)) == (2.0, 0.5, 1.5)
    assert after_first_s(answered(2.0, first_s=2.0)) == pytest.approx(0.001), "all in one read is no time at all"
    failed = replace(record, error="HTTP 500")
    assert (reply_s(failed), first_output_s(failed), after_first_s(failed)) == (math.inf,) * 3
    marked = Record(request=Request(request_id="r"), sent_s=1.0, marks=((1.5, "a"), (3.0, "b")), end_s=3.0)
    assert (first_output_s(marked), first_output_s(replace(marked, marks=()))) == (0.5, 2.0)


def test_times_of_a_block() -> None:
    assert block_s([answered(2.0), answered(1.0, at_s=3.0)]) == 4.0
    assert block_s([]) == block_s([answered(1.0), answered(1.0, error="cut")]) == math.inf


# -- a refusal is confirmed


def test_a_refusal_is_measured_again_with_twice_the_pairs_and_other_seeds() -> None:
    asked: list[tuple[int, int]] = []

    def measure(num_pairs: int, seed: int) -> Audited:
        asked.append((num_pairs, seed))
        refused = {"repeat_prompt": "fast"} if len(asked) == 1 else {}
        return audited("x", text="steady", figures={}, refused=refused, evidence=[answered(float(num_pairs))])

    found = confirmed(measure, num_pairs=8, seed=5)
    assert found.result.passed and [num for num, _ in asked] == [8, 16]
    assert abs(asked[1][1] - asked[0][1]) > 1000
    assert [record.end_s for record in found.evidence] == [8.0, 16.0], "all replies are judged"


def test_what_does_not_hang_on_time_and_what_passes_is_measured_once() -> None:
    wrong = audited("x", text="", figures={}, refused={"weights_do_not_matter": "right"})
    assert confirmed(lambda *_: wrong, num_pairs=4, seed=0, is_timed=lambda _: False) is wrong
    none = not_applicable("x", "no prompts")
    assert confirmed(lambda *_: none, num_pairs=4, seed=0) is none
    assert (none.state, none.refusals, none.result.passed) == ("not run", (), False)


def test_figures_that_are_no_numbers_are_absent() -> None:
    assert audited("x", text="", figures={"a": math.nan, "b": 1.0}, refused={}).result.figures == {"b": 1.0}


# -- blocks


def test_a_block_comes_when_the_one_before_is_answered() -> None:
    requests = [Request(request_id=str(number)) for number in range(4)]
    given: list[Request] = []
    between: list[tuple[int, int]] = []
    stream = BlockStream(
        blocks=[requests[:3], requests[3:]], num_finished=lambda: len(given),
        between=lambda number: between.append((number, len(given))),
    )  # fmt: skip
    for request in stream:
        given.append(request)
    assert [request.request_id for request in given] == ["0", "1", "2", "3"]
    assert between == [(0, 0), (1, 3), (2, 4)]
    assert stream.is_done


def test_a_closed_stream_of_blocks_ends() -> None:
    stream = BlockStream(blocks=[[Request(request_id="0")], [Request(request_id="1")]], num_finished=lambda: 0)
    taken = iter(stream)
    assert next(taken).request_id == "0"
    stream.close()
    assert list(taken) == [] and not stream.is_done


# -- repeats, prefixes, restart


def test_a_repeated_prompt_that_is_answered_faster_is_refused() -> None:
    records, order = in_turns([2.0 * noise for noise in NOISE], NOISE[::-1], ("fresh", "again"))
    found = judge_repeats(records, order=order, is_reuse_declared=False, seed=0)
    assert reasons(found) == ["repeat_prompt"]
    assert found.result.figures["ratio"] == pytest.approx(2.0, rel=0.1)


def test_a_repeated_prompt_within_ten_per_cent_or_within_noise_passes() -> None:
    for fresh in ([1.08 * noise for noise in NOISE], [3.0, 0.5, 2.0, 0.7, 2.5, 0.6, 1.9, 0.8]):
        records, order = in_turns(fresh, NOISE[::-1], ("fresh", "again"))
        assert reasons(judge_repeats(records, order=order, is_reuse_declared=False, seed=0)) == []


def test_a_saving_of_less_than_two_milliseconds_is_no_reuse() -> None:
    for scale, refused in ((0.001, []), (0.01, ["repeat_prompt"])):
        fresh, again = ([scale * seconds * noise for noise in NOISE] for seconds in (1.5, 1.0))
        records, order = in_turns(fresh, again, ("fresh", "again"))
        assert reasons(judge_repeats(records, order=order, is_reuse_declared=False, seed=0)) == refused


def test_declared_reuse_exempts_the_first_output_and_no_more() -> None:
    """The prefill of a prompt that comes again may be skipped then, its decoding may not."""
    kept = [(answered(2.0, first_s=1.0), "fresh"), (answered(1.05, first_s=0.05), "again")] * 4
    cached = [(answered(2.0, first_s=1.0), "fresh"), (answered(0.1, first_s=0.05), "again")] * 4
    for items, refused in ((kept, []), (cached, ["repeat_prompt"])):
        records, order = [record for record, _ in items], [kind for _, kind in items]
        assert reasons(judge_repeats(records, order=order, is_reuse_declared=True, seed=0)) == refused


def test_fresh_and_repeated_prompts_change_places() -> None:
    requests = [Request(request_id=str(number)) for number in range(8)]
    blocks, order = ordered(requests[2], requests[3:7], warm=requests[:2], twin=requests[7])
    assert order == [
        "warm", "warm", "star", "fresh", "again", "twin", "again", "fresh", "fresh", "again", "twin", "again", "fresh",
    ]  # fmt: skip
    assert all(blocks[place] == [requests[2]] for place, kind in enumerate(order) if kind in ("star", "again"))


def test_a_shared_prefix_that_saves_time_is_refused_and_one_that_does_not_passes() -> None:
    records, kinds = in_turns([1.5 * noise for noise in NOISE], NOISE[::-1], ("fresh", "shared"))
    assert reasons(judge_prefixes(records, kinds=kinds, seed=0)) == ["undeclared_reuse"]
    records, kinds = in_turns(NOISE, NOISE[::-1], ("fresh", "shared"))
    assert reasons(judge_prefixes(records, kinds=kinds, seed=0)) == []


def test_prompts_of_an_earlier_process_that_are_faster_are_refused() -> None:
    records, kinds = in_turns([1.5 * noise for noise in NOISE], NOISE[::-1], ("fresh", "known"))
    assert reasons(judge_restart(records, kinds=kinds, seed=0)) == ["state_across_restart"]
    records, kinds = in_turns(NOISE, NOISE[::-1], ("fresh", "known"))
    assert reasons(judge_restart(records, kinds=kinds, seed=0)) == []


# -- blocks: duplicates, seeds, shapes, weights


def blocks_of(pattern: Sequence[tuple[str, float]], *, num: int = 4) -> tuple[list[list[Record]], list[str]]:
    blocks = [
        [answered(seconds * noise) for _ in range(num)] for (_, seconds), noise in zip(pattern, NOISE * 8, strict=False)
    ]
    return blocks, [kind for kind, _ in pattern]


def test_identical_requests_in_flight_that_are_faster_are_refused() -> None:
    for seconds, refused in ((0.5, ["coalesced"]), (1.0, [])):
        blocks, kinds = blocks_of([("different", 1.0), ("identical", seconds)] * 5)
        found = judge_duplicates(blocks, kinds=kinds, limit=1.1, num_sent=40, seed=0)
        assert reasons(found) == refused


def test_where_prefixes_are_shared_only_the_steps_after_the_first_outputs_are_compared() -> None:
    """Four prompts read in turn against four of which three stand in the cache: no gain that coalescing would have."""

    def block(first_s: Sequence[float], steps_s: float) -> list[Record]:
        return [answered(first_s[-1] + steps_s, first_s=each) for each in first_s]

    in_turn, cached = (0.3, 0.6, 0.9, 1.2), (0.3, 0.31, 0.32, 0.33)
    assert decode_s(block(in_turn, 0.8)) == pytest.approx(0.8)
    assert decode_s([answered(1.0, first_s=1.0)]) == pytest.approx(0.001), "all in one read is no time at all"
    assert decode_s([]) == decode_s([answered(1.0), answered(1.0, error="cut")]) == math.inf
    kinds = ["different", "identical"] * 5
    for steps_s, refused in ((0.4, ["coalesced"]), (0.8, [])):
        blocks = [
            block(in_turn, 0.8 * x) if n % 2 == 0 else block(cached, steps_s * x) for n, x in enumerate(NOISE * 2)
        ]
        found = judge_duplicates(blocks[:10], kinds=kinds, limit=1.1, num_sent=40, seed=0, time_of=decode_s)
        assert reasons(found) == refused


def test_a_request_without_an_answer_is_refused_by_every_audit_of_blocks() -> None:
    blocks, kinds = blocks_of([("different", 1.0), ("identical", 1.0)] * 5)
    found = judge_duplicates(blocks, kinds=kinds, limit=1.1, num_sent=41, seed=0)
    assert reasons(found) == ["coalesced"] and "1 of 41 requests failed" in found.result.text
    blocks[3][0] = replace(blocks[3][0], error="HTTP 500")
    found = judge_duplicates(blocks, kinds=kinds, limit=1.1, num_sent=40, seed=0)
    assert reasons(found) == ["coalesced"] and "HTTP 500" in found.result.text


def test_prompts_that_anybody_may_see_must_not_be_faster_than_hidden_ones() -> None:
    for seconds, refused in ((0.8, ["seed_gap"]), (0.98, [])):
        turn = [("known", seconds), ("seed0", 1.0), ("seed1", 1.0), ("seed2", 1.0)]
        blocks, kinds = blocks_of([("warm", 9.0), *turn * 6])
        assert reasons(judge_seeds(blocks, kinds=kinds, num_sent=100, seed=0)) == refused


def test_shapes_beside_the_benchmarks_stay_below_the_longest_sequence() -> None:
    lengths = Lengths(prompt_min=24, prompt_median=44, prompt_max=64, output_median=24, output_max=32)
    usual, longer, shorter = shapes_of(lengths, longest=96)
    assert (usual.prompt, usual.output) == (44, 24)
    assert longer.prompt > lengths.prompt_max and shorter.prompt < lengths.prompt_min
    assert shorter.output > lengths.output_max
    assert all(shape.prompt + shape.output <= 96 for shape in (usual, longer, shorter))


SHAPES = (Shape(name="usual", prompt=40, output=11), Shape(name="longer_prompt", prompt=80, output=11))


@pytest.mark.parametrize(
    ("prompt_s", "decode_s", "burst_s", "refused"),
    [
        (2.0, 1.0, 9.0, []),  # twice the prompt takes twice as long, nine requests take nine times one
        (5.0, 1.0, 9.0, ["off_distribution"]),
        (2.0, 2.5, 9.0, ["off_distribution"]),
        (2.0, 1.0, 30.0, ["off_distribution"]),
    ],
)
def test_a_cliff_beside_the_benchmarks_shapes_is_refused(
    prompt_s: float, decode_s: float, burst_s: float, refused: list[str]
) -> None:
    usual = [answered(2.0, first_s=1.0)]
    longer = [answered(prompt_s + decode_s, first_s=prompt_s)]
    few, burst = [answered(4.0)] * 4, [answered(burst_s)] * 9
    blocks = [few, burst] * 4 + [usual, longer] * 4
    kinds = ["few", "burst"] * 4 + ["usual", "longer_prompt"] * 4
    found = judge_shapes(blocks, kinds=kinds, shapes=SHAPES, num_sent=60, seed=0)
    assert reasons(found) == refused


def test_a_refused_request_beside_the_benchmark_is_refused() -> None:
    blocks = [[answered(4.0)] * 4, [answered(9.0)] * 9] * 4
    blocks[1] = [*blocks[1][:8], answered(1.0, error="HTTP 400")]
    found = judge_shapes(blocks, kinds=["few", "burst"] * 4, shapes=(), num_sent=52, seed=0)
    assert reasons(found) == ["off_distribution"]


WRONG = "mean of margin 6.1, at most 0.01 is right"


@pytest.mark.parametrize(
    ("lost", "seconds", "refused"),
    [
        (WRONG, 1.0, []),
        ("", 1.0, ["weights_do_not_matter"]),
        (WRONG, 0.5, ["speed_depends_on_weights"]),
        (WRONG, 2.0, ["speed_depends_on_weights"]),
        ("", 2.0, ["weights_do_not_matter", "speed_depends_on_weights"]),
    ],
)
def test_damaged_weights_keep_the_speed_and_lose_the_accuracy(lost: str, seconds: float, refused: list[str]) -> None:
    whole, _ = blocks_of([("whole", 1.0)] * 8)
    wrong, _ = blocks_of([("damaged", seconds)] * 8)
    found = judge_damaged(whole, wrong, lost=lost, figures={"top1_agreement": 0.0}, num_sent=64, seed=0)
    assert reasons(found) == refused
    assert len(found.evidence) == 32, "wrong replies on damaged weights are nobody's to judge again"
    assert found.result.figures["damaged_top1_agreement"] == 0.0


def scores(value: float, *findings: Finding) -> Scores:
    distance = (
        Distance(name="margin", values=(value,)) if value >= 0 else Distance(name="margin", values=(), missing="x")
    )
    limit = Limit(distance="margin", statistic=Statistic.mean, bound=0.01)
    judgement = Judgement(findings=findings)
    return Scores(
        replies=(ReplyDistances(request_id="r", distances=(distance,)),), limits=(limit,), judgement=judgement
    )


def test_accuracy_is_lost_by_a_limit_or_a_rule_and_not_by_what_is_missing() -> None:
    assert "6.1" in lost_accuracy(scores(6.1))
    assert lost_accuracy(scores(0.0)) == lost_accuracy(scores(-1.0)) == ""
    assert lost_accuracy(scores(0.0, Finding(reason_class="missing_logprobs", text="none"))) == ""
    assert lost_accuracy(scores(0.0, Finding(reason_class="wrong_tokens", text="top-1 0.1"))) == "top-1 0.1"


# -- deferred work


def idle(*, late_s: Sequence[float], busy_s: Sequence[float] = (1.0, 1.0, 1.0), at_once_s: float = 1.0) -> Audited:
    pairs = [("at_once", at_once_s), ("rested", 1.0)] * 4
    blocks = [[answered(2.0, first_s=seconds * noise)] for (_, seconds), noise in zip(pairs, NOISE, strict=True)]
    return judge_idle(
        blocks, kinds=[kind for kind, _ in pairs], busy_s=busy_s, late_s=late_s, num_sent=8, seed=0
    )  # fmt: skip


def test_a_server_that_rests_passes_also_where_one_collection_ran() -> None:
    assert reasons(idle(late_s=[0.0, 0.01, 0.0])) == []
    assert reasons(idle(late_s=[0.0, 0.6, 0.02])) == []
    assert reasons(idle(late_s=[0.09, 0.09, 0.09], busy_s=[0.1, 0.1, 0.1])) == [], "below the clock's resolution"


def test_a_server_that_goes_on_or_whose_next_request_waits_is_refused() -> None:
    assert reasons(idle(late_s=[0.5, 0.6, 0.7])) == ["deferred_work"]
    assert reasons(idle(late_s=[0.5, 0.06, 0.7])) == ["deferred_work"], "a neighbour had the cores in one rest"
    assert reasons(idle(late_s=[0.0, 0.0, 0.0], at_once_s=1.6)) == ["deferred_work"]


def test_cpu_time_that_was_not_read_is_refused() -> None:
    assert reasons(idle(late_s=[])) == ["deferred_work"]
    assert reasons(idle(late_s=[0.0], busy_s=[])) == ["deferred_work"]


# -- soak


def soaked(*, rate_late: int = 10, growth_gib: float = 0.0, gap: bool = False, error: str | None = None) -> Soaked:
    """100 seconds with ten replies a second in the first half, and memory that grows by so much in all."""
    times = [n / 10 for n in range(500)] + [50 + n / rate_late for n in range(50 * rate_late)]
    records = [answered(0.01, first_s=0.005, at_s=at_s) for at_s in times if not (gap and 30 < at_s < 45)]
    if error:
        records[7] = replace(records[7], error=error)
    memory = tuple((float(at_s), 1.0 + growth_gib * at_s / 100) for at_s in range(10, 100, 5))
    return Soaked(records=tuple(records), memory=memory, start_s=10.0, end_s=100.0)


def test_a_steady_run_passes() -> None:
    found = judge_soak(soaked(growth_gib=0.05), seed=0)
    assert reasons(found) == []
    assert found.result.figures["second_half_ratio"] == pytest.approx(1.0, abs=0.02)
    assert 0 < len(found.evidence) <= 64


def test_a_run_that_slows_down_stands_still_or_fails_is_refused() -> None:
    assert reasons(judge_soak(soaked(rate_late=8), seed=0)) == ["decay"]
    assert reasons(judge_soak(soaked(gap=True), seed=0)) == ["decay"]
    assert reasons(judge_soak(soaked(error="HTTP 500"), seed=0)) == ["decay"]
    assert reasons(judge_soak(soaked(error="cut"), seed=0)) == []


def test_memory_that_grows_or_was_not_read_is_refused() -> None:
    assert reasons(judge_soak(soaked(growth_gib=0.5), seed=0)) == ["memory_growth"]
    small = replace(soaked(), memory=tuple((at_s, 0.01 * gib) for at_s, gib in soaked(growth_gib=0.5).memory))
    assert reasons(judge_soak(small, seed=0)) == [], "half of ten megabytes is no leak"
    assert reasons(judge_soak(replace(soaked(), memory=()), seed=0)) == ["memory_growth"]
    zeros = tuple((at_s, 0.0) for at_s, _ in soaked().memory)
    assert reasons(judge_soak(replace(soaked(), memory=zeros), seed=0)) == ["memory_growth"]


def test_outputs_of_any_workload_have_times() -> None:
    plain = Record(request=Request(request_id="r"), end_s=3.0)
    assert output_times([plain, replace(plain, marks=((1.0, 0), (2.0, 0))), replace(plain, error="cut")]) == [
        3.0,
        1.0,
        2.0,
    ]


# -- start-up, impossible numbers


def test_starts_within_the_cap_whose_prompts_come_after_readiness_pass() -> None:
    assert reasons(judge_starts([Start(startup_s=4.0, ready_at_s=10.0, drawn_at_s=10.5)], max_s=5.0)) == []


@pytest.mark.parametrize(
    ("starts", "refused"),
    [
        ([], ["slow_start"]),
        ([Start(startup_s=6.0, ready_at_s=1.0, drawn_at_s=2.0)], ["slow_start"]),
        ([Start(startup_s=math.nan, ready_at_s=1.0, drawn_at_s=2.0)], ["slow_start"]),
        ([Start(startup_s=1.0, ready_at_s=3.0, drawn_at_s=2.0)], ["early_prompt"]),
    ],
)
def test_a_slow_start_and_a_prompt_before_readiness_are_refused(starts: list[Start], refused: list[str]) -> None:
    assert reasons(judge_starts(starts, max_s=5.0)) == refused


def possible(
    value: float, *, bound_by: str, metric: str = "output_throughput", bandwidth_gb_s: float = 10.0, **more: Any
) -> Audited:
    direction = Direction.MAX if metric == "output_throughput" else Direction.MIN
    ceiling = Ceiling(metric=metric, unit="", value=100.0, bound_by=bound_by, load="c4")
    plan: Any = SimpleNamespace(ceilings=(ceiling,), roof=SimpleNamespace(bandwidth_gb_s=bandwidth_gb_s))
    row = MetricResult(name=metric, unit="", direction=direction, role=Role.HEADLINE, load="c4", candidate=value)
    return judge_possible(plan, [row], **more)


@pytest.mark.parametrize("bound_by", [DECLARED, COMPUTE])
def test_a_declared_bound_holds_to_a_thousandth(bound_by: str) -> None:
    assert reasons(possible(100.05, bound_by=bound_by)) == []
    assert reasons(possible(100.2, bound_by=bound_by)) == ["impossible"]
    assert reasons(possible(99.95, bound_by=bound_by, metric="tpot_p50")) == []
    assert reasons(possible(99.8, bound_by=bound_by, metric="tpot_p50")) == ["impossible"]


def test_a_measured_bound_has_a_margin_and_is_measured_again() -> None:
    assert reasons(possible(120.0, bound_by=MEASURED)) == []
    assert reasons(possible(200.0, bound_by=MEASURED)) == ["impossible"]
    readings = iter([9.0, 18.0, 11.0])
    assert reasons(possible(200.0, bound_by=MEASURED, measure_gb_s=lambda: next(readings))) == []
    assert reasons(possible(200.0, bound_by=MEASURED, measure_gb_s=lambda: 9.0)) == ["impossible"]


def test_what_no_roofline_bounds_is_not_judged() -> None:
    assert possible(200.0, bound_by="offered load").state == "not run"
    assert possible(math.nan, bound_by=DECLARED).state == "not run"
    unread = possible(99.0, bound_by=MEASURED, bandwidth_gb_s=UNBOUNDED_GB_S)
    assert unread.state == "not run", "verify reads no bandwidth: to be far below none is no pass"


# -- traffic


def test_requests_of_the_commonest_shape_are_different_ones() -> None:
    payloads = [
        {"size": 3, "text": "abc"},
        {"size": 3, "text": "abcd"},
        {"size": 9, "text": "xyz"},
        {"size": 3, "text": "abc"},
    ]
    requests = [Request(request_id=str(number), payload=payload) for number, payload in enumerate(payloads)]
    assert [request.request_id for request in commonest(requests)] == ["0", "2"]
    assert commonest([]) == []


def test_a_shape_has_no_content() -> None:
    assert shape_of({"b": [1, 2], "a": "xy"}) == shape_of({"a": "uv", "b": [7, 8]})
    assert shape_of({"a": "xy"}) != shape_of({"a": "xyz"}) != shape_of({"b": "xyz"})
    assert shape_of([[1.0, 2.0], [3.0]]) != shape_of([[1.0, 2.0], [3.0, 4.0]])


def test_a_scope_says_what_it_leaves_out() -> None:
    assert left_out(AuditScope.full) == ()
    assert len(left_out(AuditScope.full, hardware_kind="cuda")) == 1, "CPU time says nothing about a GPU's"
    assert "soak with drift tests" in left_out(AuditScope.cheap)
    assert set(left_out(AuditScope.none)) > set(left_out(AuditScope.cheap))
