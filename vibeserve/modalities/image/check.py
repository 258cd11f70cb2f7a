"""How far a served image is from the reference's for the same prompt, seed, steps and guidance.

Latents are judged and pixels are, both against the reference's: a PNG that is not its latents' picture fails by its
pixels, latents that belong to no such PNG by themselves. The bounds were calibrated by planted faults
(`vibeserve check TARGET --deep` plants them again; docs/image.md has the figures).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Context, Distance, Finding, Judgement, Limit, ReplyDistances, Statistic
from vibeserve.core.documents import digest_of
from vibeserve.modalities.image.wire import ImageRecord, latents_of, pixels_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LATENT, PIXEL = "latent_error", "pixel_error"
LATENT_MAX, LATENT_MEAN = 0.06, 0.04
"""of |served - reference| / |reference| over an image's latents. On the tiny model: 0.015 to 0.030 where all is done in
bf16, from 0.12 on where a step of eight is left out, from 0.14 on where guidance is 15% lower"""
PIXEL_MAX, PIXEL_MEAN = 0.018, 0.012
"""of the root of the mean squared difference of pixels, as a share of their range; 0.018 is a PSNR of 35 dB. The same
three: 0.005 to 0.007, from 0.028 on, from 0.028 on"""


def configure(context: Context) -> ImageCheck:
    return ImageCheck()


class ImageCheck:
    """See `contract.Check`."""

    LIMITS: Sequence[Limit] = tuple(
        Limit(distance=distance, statistic=statistic, bound=bound, reason_class=reason)
        for distance, reason, bounds in (
            (LATENT, "wrong_latents", (LATENT_MAX, LATENT_MEAN)),
            (PIXEL, "wrong_image", (PIXEL_MAX, PIXEL_MEAN)),
        )
        for statistic, bound in zip((Statistic.max, Statistic.mean), bounds, strict=True)
    )

    def compare(self, expected: Any, record: ImageRecord) -> Sequence[Distance]:
        pixels = pixel_distance(expected, record.output)
        if record.request.payload.get("is_plain"):
            # nobody asked for latents
            return [pixels]
        return [_latent_distance(expected, record.output), pixels]

    def inspect(self, records: Sequence[ImageRecord]) -> Sequence[Finding]:
        return repeated_images(records)

    def judge(self, replies: Sequence[ReplyDistances]) -> Judgement:
        """Figures alone; the limits decide."""
        figures = {"num_images": float(len(replies))}
        for name in (LATENT, PIXEL):
            values = [value for reply in replies for value in reply.values(name)]
            if values:
                figures |= {f"{name}_mean": sum(values) / len(values), f"{name}_max": max(values)}
        return Judgement(figures=figures)

    def same(self, first: ImageRecord, again: ImageRecord) -> Sequence[Distance]:
        """Two records of one request: alike as two honest computations are."""
        return self.compare(first.output, again)


def repeated_images(records: Sequence[ImageRecord]) -> list[Finding]:
    """The same picture for different requests: no two of a load share a seed."""
    groups: dict[str, set[int]] = defaultdict(set)
    for record in records:
        if record.output is not None:
            groups[digest_of(record.output["png"])].add(record.request.payload["seed"])
    num = sum(len(seeds) - 1 for seeds in groups.values())
    if not num:
        return []
    text = f"{num} of {len(records)} images came for another seed, too"
    return [Finding(reason_class="repeated_image", text=text)]


def _latent_distance(expected: Any, served: Any) -> Distance:
    import numpy as np

    try:
        right, found = latents_of(expected["latents"]).astype(np.float64), latents_of(served["latents"])
    except ValueError as error:
        return Distance(name=LATENT, values=(), missing=str(error))
    if right.shape != found.shape:
        return Distance(name=LATENT, values=(), missing=f"{len(found)} latents, not {len(right)}")
    if not np.isfinite(found).all():
        return Distance(name=LATENT, values=(), missing="latents that are not finite")
    relative = np.linalg.norm(found.astype(np.float64) - right) / np.linalg.norm(right)
    return Distance(name=LATENT, values=(float(relative),), unit="relative")


def pixel_distance(expected: Any, served: Any) -> Distance:
    """Of two outputs with a `png` each."""
    try:
        right, found = pixels_of(expected["png"]), pixels_of(served["png"])
    except ValueError as error:
        return Distance(name=PIXEL, values=(), missing=str(error))
    if right.shape != found.shape:
        sides = (f"{each.shape[1]} x {each.shape[0]}" for each in (found, right))
        return Distance(name=PIXEL, values=(), missing="{} pixels, not {}".format(*sides))
    return Distance(name=PIXEL, values=(pixel_error(right, found),), unit="share of the range")


def pixel_error(right: NDArray[np.uint8], found: NDArray[np.uint8]) -> float:
    """Root of the mean squared difference, as a share of the range."""
    import numpy as np

    return float(np.sqrt(np.mean((right.astype(np.float64) - found) ** 2)) / 255)
