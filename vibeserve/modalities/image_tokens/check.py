"""How far the codes of a served image are from the reference's rule, and its picture from those codes.

Each code is judged behind the served ones before it: by how much the reference would rather have had another. So a
server that rounds otherwise passes though its picture turns into another one where two codes were nearly even, and one
that draws for another prompt, seed or guidance does not. The picture is the reference's for the served codes. The
bounds were calibrated by planted faults (`vibeserve check TARGET --deep` plants them again; docs/image.md has the
figures).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vibeserve.contract import Context, Distance, Finding, Judgement, Limit, ReplyDistances, Statistic
from vibeserve.modalities.image.check import PIXEL, pixel_distance, repeated_images
from vibeserve.modalities.image.wire import ImageRecord

MARGIN = "token_margin"
"""per code: the reference's largest score minus that of the served code, nats; 0 where they agree"""
MARGIN_MAX, MARGIN_MEAN = 0.4, 0.005
"""nats. An image that is drawn in bf16 throughout has a mean of 0.000 to 0.002 and a largest of 0.09; guidance or a
temperature that is 15% lower a mean of 0.005 to 0.08 an image, 0.02 to 0.06 over several"""
FAR, FAR_SHARE = 0.25, 0.01
"""nats, and the share of codes that may lie so far below the reference's choice: bf16 has none of 1,500"""

PIXEL_MAX, PIXEL_MEAN = 0.01, 0.007
"""of `image.check.pixel_error`, between two pictures of the same codes: 0.0035 to 0.0042 where the decoder computes in
bf16, 0.007 to 0.05 where one code of 64 or 256 is another one"""


def configure(context: Context) -> TokenImageCheck:
    return TokenImageCheck()


class TokenImageCheck:
    """See `contract.Check`."""

    LIMITS: Sequence[Limit] = (
        Limit(distance=MARGIN, statistic=Statistic.max, bound=MARGIN_MAX, reason_class="wrong_tokens"),
        Limit(distance=MARGIN, statistic=Statistic.mean, bound=MARGIN_MEAN, reason_class="wrong_tokens"),
        Limit(
            distance=MARGIN, statistic=Statistic.share_at_least, at=FAR, bound=FAR_SHARE, reason_class="wrong_tokens"
        ),
        Limit(distance=PIXEL, statistic=Statistic.max, bound=PIXEL_MAX, reason_class="wrong_image"),
        Limit(distance=PIXEL, statistic=Statistic.mean, bound=PIXEL_MEAN, reason_class="wrong_image"),
    )

    def compare(self, expected: Any, record: ImageRecord) -> Sequence[Distance]:
        problem = expected["problem"]
        margins = Distance(name=MARGIN, values=tuple(expected["margins"]), unit="nats", missing=problem)
        if problem:
            return [margins, Distance(name=PIXEL, values=(), missing="no codes that the picture could be of")]
        return [margins, pixel_distance(expected, record.output)]

    def inspect(self, records: Sequence[ImageRecord]) -> Sequence[Finding]:
        return repeated_images(records)

    def judge(self, replies: Sequence[ReplyDistances]) -> Judgement:
        """Figures alone; the limits decide."""
        figures = {"num_images": float(len(replies))}
        margins = [value for reply in replies for value in reply.values(MARGIN)]
        if margins:
            figures |= {
                "num_tokens": float(len(margins)), "top1_agreement": sum(each == 0 for each in margins) / len(margins),
                "mean_margin": sum(margins) / len(margins), "max_margin": max(margins),
                "far_share": sum(each >= FAR for each in margins) / len(margins),
            }  # fmt: skip
        pixels = [value for reply in replies for value in reply.values(PIXEL)]
        if pixels:
            figures |= {f"{PIXEL}_mean": sum(pixels) / len(pixels), f"{PIXEL}_max": max(pixels)}
        return Judgement(figures=figures)

    def same(self, first: ImageRecord, again: ImageRecord) -> Sequence[Distance]:
        """Two records of one request: the same codes, and pictures as alike as two decoders are."""
        one, other = ([] if each.output is None else each.output["token_ids"] for each in (first, again))
        margin = Distance(name=MARGIN, values=(0.0 if one == other else math.inf,), unit="nats")
        return [margin, pixel_distance(first.output, again.output)]
