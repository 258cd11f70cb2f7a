"""Images in windows: they take long, so that they count by the time that they take of a window."""

from __future__ import annotations

import pytest
from image_samples import record_of

from vibeserve.contract import CUT, Window
from vibeserve.modalities.image.metrics import measure_images

WINDOWS = [Window(start_s=10, end_s=20)]


def test_images_that_fit_count_as_they_are() -> None:
    records = [record_of(sent_s=10 + 2 * number, end_s=12 + 2 * number) for number in range(5)]
    found = measure_images(records, WINDOWS)
    assert found == {"image_throughput": 0.5, "request_throughput": 0.5, "num_images": 5.0, "e2el_p50": 2.0}


def test_an_image_longer_than_the_window_has_its_own_latency() -> None:
    found = measure_images([record_of(sent_s=5, end_s=30)], WINDOWS)
    assert found["e2el_p50"] == 25
    assert found["image_throughput"] == pytest.approx(10 / 25 / 10)


def test_a_slower_server_is_slower_in_every_window() -> None:
    """A closed loop of images of 7 s, and one of images of 14 s, wherever the window lies."""
    for offset in range(7):
        rates = []
        for length in (7, 14):
            starts = [offset - 21 + length * number for number in range(10)]
            records = [record_of(sent_s=start, end_s=start + length) for start in starts]
            rates.append(measure_images(records, WINDOWS)["image_throughput"])
        assert rates[0] == pytest.approx(2 * rates[1])


def test_what_is_cut_off_counts_as_the_others_take() -> None:
    whole, cut = record_of(sent_s=6, end_s=12), record_of(sent_s=12, end_s=20, error=CUT)
    found = measure_images([whole, cut], WINDOWS)
    assert found["e2el_p50"] == 6
    assert found["image_throughput"] == pytest.approx((2 / 6 + 8 / 8) / 10)


def test_nothing_but_a_cut_image_is_at_least_its_age() -> None:
    assert measure_images([record_of(sent_s=4, end_s=20, error=CUT)], WINDOWS)["e2el_p50"] == 16
    found = measure_images([record_of(sent_s=14, end_s=20, error=CUT)], WINDOWS)
    assert found == {"image_throughput": 0.0, "request_throughput": 0.0, "num_images": 0.0}


def test_failed_images_are_infinitely_late_and_no_images() -> None:
    right = [record_of(sent_s=10, end_s=12), record_of(sent_s=12, end_s=14)]
    failed = [record_of(sent_s=14 + n, end_s=15 + n, error="HTTP 500") for n in range(3)]
    found = measure_images([*right, *failed], WINDOWS)
    assert "e2el_p50" not in found and found["num_images"] == 2
    assert found["image_throughput"] == pytest.approx(0.2)


def test_images_beside_the_windows_are_nobodys() -> None:
    found = measure_images([record_of(sent_s=1, end_s=9), record_of(sent_s=20, end_s=30)], WINDOWS)
    assert found == {"image_throughput": 0.0, "request_throughput": 0.0, "num_images": 0.0}
