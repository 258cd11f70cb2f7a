"""What people asked, and how good forecasts were, on the pages of an artifact."""

from __future__ import annotations

from artifact_samples import sample_manifest

from vibeserve.core.manifest import Calibration, Intervention, ScoredForecast
from vibeserve.report.page import render_report
from vibeserve.report.verdict import render_verdict

ROW = ScoredForecast(round=1, forecast=2.0, measured=1.5, ci_low=1.4, ci_high=1.6, log_error=-0.2877, is_inside=False)
CALIBRATION = Calibration(
    forecasts=(ROW,) * 5, judgement="forecasts too high", bias=0.75, mean_abs_log_error=0.2877, coverage=0.0
)
LINE = (
    "5 measured: on average 0.75 of the forecast (forecasts too high), off by a factor of 1.33, 0% inside the measured "
    "interval"
)
ASKED = Intervention(
    number=1, command="constrain", text="constrain ban paged-kv", who="person <ada> | bob", round=2, state="refused",
    at="2026-11-30T08:00:00+00:00", effect="there is no component 'paged-kv'",
)  # fmt: skip


def test_both_pages_tell_it_and_escape_what_people_wrote() -> None:
    manifest = sample_manifest(calibration=CALIBRATION, interventions=(ASKED,))
    page, verdict = render_report(manifest), render_verdict(manifest, seeds={})
    assert f"Forecasts of the proposals: {LINE}." in page and f"Its forecasts: {LINE}." in verdict
    assert "person &lt;ada&gt; | bob" in page and "<ada>" not in page
    assert (
        "- 2026-11-30T08:00:00+00:00, round 2, person &lt;ada> \\| bob: constrain ban paged-kv: refused: there is no "
        "component 'paged-kv'"
    ) in verdict


def test_a_search_that_nobody_steered_says_nothing_of_it() -> None:
    manifest = sample_manifest()
    verdict = render_verdict(manifest, seeds={})
    assert "orecasts" not in verdict and "People stepped in" not in verdict
    assert "What people asked" not in render_report(manifest)
