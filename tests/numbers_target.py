"""A target folder that is no text: the server sends a list of numbers back in reverse, halved."""

from __future__ import annotations

from pathlib import Path

from vibeserve.modalities import Bundle, BundleRef, bundle_ref, open_bundle
from vibeserve.spec import Evaluation, Modality, Model, Spec, TargetInfo, Tolerances, Workload

REFERENCE = """
from vibeserve.contract import Request


class Halves:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def run(self, request: Request) -> list[float]:
        return [value * self.scale for value in reversed(request.payload)]


def load(path: str, device: str, dtype: str) -> Halves:
    return Halves(0.5 if dtype == "float32" else 0.5001)
"""
WORKLOAD = """
import random
from dataclasses import replace

from vibeserve.contract import Direction, Metric, Record, Request

METRICS = (Metric(name="numbers_per_s", unit="1/s", direction=Direction.MAX),)


def requests(seed, pool):
    generator = random.Random(f"{pool.value}-{seed}")
    number = 0
    while True:
        payload = [generator.randrange(1, 1000) for _ in range(generator.randint(3, 6))]
        yield Request(request_id=f"{pool.value}-{seed}-{number}", payload=payload)
        number += 1


async def send(session, request):
    response = await session.post("/v1/halves", {"model": session.model, "numbers": request.payload})
    import json

    return Record(request=request, output=json.loads(response.body)["numbers"])


def measure(records, windows):
    inside = [record for record in records if record.error is None]
    return {"numbers_per_s": sum(len(record.output) for record in inside) / sum(w.end_s - w.start_s for w in windows)}


def shortened(request):
    return replace(request, payload=request.payload[:3])
"""
CHECK = """
from vibeserve.contract import Distance, Limit, Statistic

LIMITS = (
    Limit(distance="error", statistic=Statistic.max, bound=0.01),
    Limit(distance="error", statistic=Statistic.mean, bound=0.005),
)


def compare(expected, record):
    if len(expected) != len(record.output):
        return [Distance(name="error", values=(), missing="another number of numbers")]
    pairs = zip(expected, record.output, strict=True)
    return [Distance(name="error", values=tuple(abs(a - b) / max(1.0, abs(a)) for a, b in pairs))]
"""
FAULTS = """
from vibeserve.contract import Fault


def unhalved(references, request, other):
    return list(reversed(request.payload))


def in_order(references, request, other):
    return [value / 2 for value in request.payload]


def off_by_one(references, request, other):
    return [value + 20 for value in references.exact().run(request)]


def rounded(references, request, other):
    return references.rounded().run(request)


FAULTS = (
    Fault(name="unhalved", is_wrong=True, make=unhalved),
    Fault(name="in_order", is_wrong=True, make=in_order),
    Fault(name="off_by_one", is_wrong=True, make=off_by_one),
    Fault(name="rounded", is_wrong=False, make=rounded),
)
"""
FILES = {"reference.py": REFERENCE, "workload.py": WORKLOAD, "check.py": CHECK, "faults.py": FAULTS}


def write_target(folder: Path, **changes: str) -> Path:
    """The folder of the target, with the files (`check=...`) that a test changes; empty = left out."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "target.yaml").write_text("description: numbers\n", encoding="utf-8")
    texts = FILES | {f"{name}.py": text for name, text in changes.items()}
    for name, text in texts.items():
        if text:
            (folder / name).write_text(text.lstrip(), encoding="utf-8")
    return folder


def numbers_spec(folder: Path, *, limits: dict[str, float] | None = None) -> Spec:
    return Spec(
        target=TargetInfo(name=folder.name, dir=str(folder)),
        model=Model(id="numbers", architecture="none", modality=Modality.custom),
        workload=Workload(kind="custom"),
        evaluation=Evaluation(tolerances=Tolerances(limits=limits or {})),
    )


def numbers_ref(folder: Path, *, limits: dict[str, float] | None = None) -> BundleRef:
    return bundle_ref(numbers_spec(folder, limits=limits), model_dir=folder)


def numbers_bundle(folder: Path, **changes: str) -> Bundle:
    return open_bundle(numbers_ref(write_target(folder, **changes)))
