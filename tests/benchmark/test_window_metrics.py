"""Metrics of a window against replies made by hand: every figure here can be checked on paper."""

from __future__ import annotations

import pytest
from load_samples import PIECES, reply, steady_reply, text_bundle

from vibeserve.benchmark import pooled_metrics, window_metrics
from vibeserve.contract import percentile
from vibeserve.core.nouns import Reply
from vibeserve.spec import Slo


def metrics(
    replies: list[Reply], *, start_s: float = 0.0, end_s: float = 10.0, slo: Slo | None = None
) -> dict[str, float]:
    return window_metrics(replies, start_s=start_s, end_s=end_s, bundle=text_bundle(slo=slo))


def row(num: int, *, ttft_s: float = 0.5, tpot_s: float = 0.1) -> list[Reply]:
    """One reply of 6 tokens per second of time."""
    return [steady_reply(scheduled_s=float(k), ttft_s=ttft_s, tpot_s=tpot_s, num_tokens=6) for k in range(num)]


def test_latencies_and_rates_of_a_steady_row() -> None:
    seen = metrics(row(10))
    assert seen["output_throughput"] == pytest.approx(5.9), "the last token of the last reply falls on the border"
    assert seen["request_throughput"] == pytest.approx(0.9)
    assert seen["ttft_p50"] == pytest.approx(0.5)
    assert seen["tpot_p50"] == pytest.approx(0.1)
    assert seen["itl_p50"] == pytest.approx(0.1)
    assert seen["e2el_p50"] == pytest.approx(1.0)
    assert seen["mean_output_tokens"] == 6
    assert seen["num_failed"] == 0


def test_tokens_count_in_the_window_in_which_they_arrived_not_in_which_the_request_ended() -> None:
    long = [steady_reply(scheduled_s=0.0, ttft_s=1.0, tpot_s=1.0, num_tokens=30)]
    seen = metrics(long, start_s=10.0, end_s=20.0)
    assert seen["output_throughput"] == pytest.approx(1.0)
    assert seen["request_throughput"] == 0
    assert seen["num_in_flight"] == 1
    assert seen["oldest_in_flight_s"] == pytest.approx(20.0)


def test_tokens_of_cut_replies_count_and_their_latency_does_not() -> None:
    cut = reply([(1.0, PIECES[0]), (2.0, PIECES[1])], end_s=9.0, error="cut")
    seen = metrics([cut])
    assert seen["output_throughput"] == pytest.approx(0.2)
    assert seen["num_failed"] == seen["num_finished"] == 0


def test_tokens_that_arrived_before_the_window_or_after_it_do_not_count() -> None:
    whole = reply([(1.0, " the"), (6.0, " quick"), (7.0, " fox")], end_s=9.0)
    cut = reply([(9.0, " the quick"), (30.0, " fox")], end_s=9.0, error="cut")
    assert metrics([whole, cut], start_s=5.0, end_s=10.0)["output_throughput"] == 4 / 5


def test_failed_replies_have_no_tokens_and_infinite_latency() -> None:
    failed = [reply([(float(k), PIECES[0])], scheduled_s=float(k), error="HTTP 500: x") for k in range(4)]
    seen = metrics([*row(5), *failed])
    assert seen["num_failed"] == 4
    assert seen["output_throughput"] == pytest.approx(3.0)
    assert seen["ttft_p50"] == pytest.approx(0.5), "5 of 9 are finite: the median still is"
    worse = metrics([*row(5), *failed, *failed])
    assert "ttft_p50" not in worse, "the median falls on a failed request"
    assert worse["num_failed"] == 8


def test_a_finished_reply_without_text_is_a_failure() -> None:
    empty = [reply([], scheduled_s=1.0, end_s=1.5)]
    seen = metrics(empty)
    assert seen["num_failed"] == 1
    assert seen["goodput"] == 0


def test_latency_counts_from_the_scheduled_time() -> None:
    late = [
        Reply(
            request=sample.request,
            scheduled_s=sample.scheduled_s - 0.3,
            sent_s=sample.sent_s,
            end_s=sample.end_s,
            chunks=sample.chunks,
            finish_reason="length",
            usage=None,
        )
        for sample in row(6)
    ]
    seen = metrics(late)
    assert seen["ttft_p50"] == pytest.approx(0.8)
    assert seen["sent_lag_max_s"] == pytest.approx(0.3)


def test_a_burst_does_not_make_the_inter_token_latency_zero() -> None:
    bursts = [
        reply([(1.0, "".join(PIECES[:3])), (2.0, "".join(PIECES[3:6])), (3.0, "".join(PIECES[6:9]))]) for _ in range(5)
    ]
    assert metrics(bursts)["itl_p50"] == pytest.approx(1.0)


def test_goodput_needs_both_bounds() -> None:
    replies = row(9)
    assert metrics(replies, slo=Slo(ttft_s=0.6, tpot_s=0.2))["goodput"] == pytest.approx(0.9)
    assert metrics(replies, slo=Slo(ttft_s=0.4, tpot_s=0.2))["goodput"] == 0
    assert metrics(replies, slo=Slo(ttft_s=0.6, tpot_s=0.05))["goodput"] == 0


def test_too_few_samples_give_no_percentile() -> None:
    assert "ttft_p50" not in metrics(row(4))
    seen = metrics(row(9))
    assert "ttft_p50" in seen
    assert "ttft_p99" not in seen
    assert percentile([1.0] * 661, 99) is None
    assert percentile([float(k) for k in range(1, 1001)], 99) == 990
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 50) == 3


def test_pooled_windows_count_no_token_twice_and_nothing_between() -> None:
    replies = row(10)
    whole = metrics(replies)
    pooled = pooled_metrics(replies, windows=[(0.0, 5.0), (5.0, 10.0)], bundle=text_bundle())
    assert pooled["num_tokens"] == whole["num_tokens"]
    assert pooled["num_finished"] == whole["num_finished"]
    holed = pooled_metrics(replies, windows=[(0.0, 2.0), (8.0, 10.0)], bundle=text_bundle())
    assert holed["num_tokens"] < whole["num_tokens"]
    assert holed["output_throughput"] == pytest.approx(holed["num_tokens"] / 4)


def test_an_empty_window_is_refused_and_no_reply_is_no_throughput() -> None:
    with pytest.raises(ValueError, match="windows must be non-empty intervals"):
        metrics(row(1), start_s=1.0, end_s=1.0)
    seen = metrics([])
    assert seen["output_throughput"] == 0
    assert "ttft_p50" not in seen
