"""The tables of a fault study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vibeserve.accuracy.distributions import DistributionLimits, distribution_problems
from vibeserve.accuracy.roc import FACTORS, NEVER
from vibeserve.accuracy.study import Row, Study

SHOWN_FACTORS = FACTORS[::2]


def render(study: Study) -> str:
    """All tables, as text."""
    return "\n".join(_lines(study))


def _lines(study: Study) -> Iterator[str]:
    tokens = study.trial_replies * study.num_tokens
    yield (
        f"{study.target}, seed {study.seed}: {study.num_replies} replies of {study.num_tokens} tokens a plant; "
        f"{study.num_trials} trials of {study.trial_replies} replies ({tokens} tokens), {study.wall_s:.0f} s"
    )
    yield "tolerances: " + ", ".join(f"{name} {value:g}" for name, value in study.tolerances.items())
    yield ""
    yield "plants: share of trials refused by the shipped tolerances; factor = how much milder they would have to be"
    yield from _table([_HEADING, *(_plant_cells(row) for row in study.rows)])
    yield ""
    yield f"ROC of the whole gate, tolerances times a factor (1 = shipped); AUC {_number(study.auc)}"
    points = {point.factor: point for point in study.roc}
    yield from _table(
        [
            ["factor", *(f"{factor:g}" for factor in SHOWN_FACTORS)],
            ["honest refused", *(f"{points[factor].false_refusals:.3f}" for factor in SHOWN_FACTORS)],
            ["faults refused", *(f"{points[factor].detected:.3f}" for factor in SHOWN_FACTORS)],
        ]
    )
    yield f"honest trials refused at factor 1: at most {study.false_refusals_upper:.2%} (95%, trials as independent)"
    yield ""
    yield "AUC of single figures over all faults: " + ", ".join(
        f"{name} {_number(value)}" for name, value in sorted(study.rule_auc.items())
    )
    yield from _component_lines(study.rows)
    yield from _sampling_lines(study)


_FIGURES = ["top1", "margin", "worst", "logprob"]
_HEADING = ["plant", "strength", "is", "refused", "factor", "AUC", *_FIGURES, "rules"]


def _plant_cells(row: Row) -> list[str]:
    figures = row.figures
    cells = [figures.get(name) for name in ("top1_agreement", "mean_margin", "max_disagreement_margin")]
    return [
        row.name, row.strength, "wrong" if row.is_wrong else "right", f"{row.refused:.2f}",
        f">{FACTORS[-1]:g}" if row.critical_median >= NEVER else f"{row.critical_median:.2g}", _number(row.auc),
        _number(cells[0], digits=4), _number(cells[1], digits=5), _number(cells[2]),
        _number(figures.get("logprob_mean"), digits=4),
        " ".join(f"{name} {count}" for name, count in row.rules.items()),
    ]  # fmt: skip


def _component_lines(rows: Sequence[Row]) -> Iterator[str]:
    limits = DistributionLimits()
    yield ""
    yield (
        f"whole distributions on fixed text: KL mean <= {limits.kl_mean_max:g}, p99 <= {limits.kl_p99_max:g}, "
        f"top-1 >= {limits.top1_agreement_min:g}, |dNLL| <= {limits.nll_difference_max:g}"
    )
    table = [["plant", "is", "KL mean", "KL p99", "top1", "dNLL", "verdict"]]
    for row in rows:
        if row.component:
            figures = row.component
            problems = list(distribution_problems(figures, limits=limits))
            table.append(
                [
                    row.name, "wrong" if row.is_wrong else "right", f"{figures['kl_mean']:.2e}",
                    f"{figures['kl_p99']:.2e}", f"{figures['top1_agreement']:.4f}",
                    f"{figures['nll_difference']:.4f}", "refused" if problems else "passes",
                ]
            )  # fmt: skip
    yield from _table(table)


def _sampling_lines(study: Study) -> Iterator[str]:
    if not study.sampling:
        return
    yield ""
    yield f"sampling at temperature > 0: {study.sampling[0].num_draws} draws a test, {study.sampling_seconds:.0f} s"
    table = [["drawn", "is", "refused", "median p"]]
    for row in study.sampling:
        kind = "wrong" if row.is_wrong else "right"
        table.append([row.name, kind, f"{row.refused:.2f}", f"{row.median_p:.1e}"])
    yield from _table(table)


def _number(value: float | None, *, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _table(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
