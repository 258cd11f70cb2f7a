"""What a seed is by content: a plan's hash covers that, and never the place where it lies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vibeserve.core.documents import digest_file, digest_of, digest_tree
from vibeserve.errors import SpecError
from vibeserve.spec import SEED_BASELINE, Baseline, BaselineClass, Seed, Spec

SEED_PLACES = ("path", "url", "overlay")
SUMS = "SHA256SUMS"
"""lists every other file of an artifact by its digest"""


def with_seed(spec: Spec) -> Spec:
    """`spec` with what its seed implies: the seed's digest; of a pinned engine the leave to import it and a baseline of
    its own, competent because somebody runs it. SpecError as `with_digest`."""
    seed = with_digest(spec.seed)
    if seed.kind != "git":
        return replace(spec, seed=seed)
    engines = [*spec.allow_engines, *([seed.engine] if seed.engine else [])]
    own = Baseline(baseline_class=BaselineClass.competent, required=True, version=seed.commit[:12])
    return replace(
        spec, seed=seed, allow_engines=list(dict.fromkeys(engines)), baseline={**spec.baseline, SEED_BASELINE: own}
    )


def with_digest(seed: Seed) -> Seed:
    """The seed with `digest` filled; a scaffold has none, because the framework's covers it.

    SpecError where the folder is not what a declared digest says, or is no artifact. A folder that is gone keeps the
    declared digest: whoever verifies an artifact elsewhere has no use for what its search started from.
    """
    if seed.kind == "scaffold" or _is_gone(seed):
        return seed
    found = _digest(seed)
    if seed.digest and seed.digest != found:
        raise SpecError(
            "the seed is not the one that is declared",
            problems=[f"seed.digest: {seed.digest} is declared, what lies there has {found}"],
            hint="correct seed.path, or leave seed.digest out",
        )
    return replace(seed, digest=found)


def _is_gone(seed: Seed) -> bool:
    return bool(seed.digest) and any(path and not Path(path).is_dir() for path in (seed.path, seed.overlay))


def _digest(seed: Seed) -> str:
    if seed.kind == "git":
        overlay = digest_tree(Path(seed.overlay)) if seed.overlay else {}
        return digest_of({"commit": seed.commit, "overlay": overlay})
    folder = Path(seed.path)
    if seed.kind == "path":
        return digest_of(digest_tree(folder))
    if not (folder / SUMS).is_file():
        raise SpecError(
            "the seed is no artifact", problems=[f"seed.path: {folder} has no {SUMS}"],
            hint="name a folder such as artifacts/NAME/latest",
        )  # fmt: skip
    return digest_file(folder / SUMS)
