"""What the tests of speech share: the tiny model, recordings, and records of them."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vibeserve.contract import Context, Pool, Request
from vibeserve.core.documents import to_data
from vibeserve.core.paths import data_dir
from vibeserve.modalities.speech.wire import SpeechRecord
from vibeserve.spec import Model, Tolerances, Workload
from vibeserve.workloads.streaming_asr import streaming_asr_stream

WORKLOAD = Workload(kind="streaming_asr", audio_s_min=1.0, audio_s_max=2.0, chunk_s=0.5)


def tiny_speech_model() -> Model:
    """The declared model of target `tiny_speech_cpu`."""
    from omegaconf import OmegaConf

    loaded = OmegaConf.load(data_dir("conf") / "model" / "tiny_speech.yaml")
    model = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Model), loaded))
    assert isinstance(model, Model)
    return model


def tiny_speech_dir() -> Path:
    """Its folder, kept between sessions under the temporary folder."""
    from vibeserve.weights import materialise

    return materialise(tiny_speech_model(), cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path


def context(model_dir: Path | None = None, workload: Workload = WORKLOAD) -> Context:
    return Context(
        model_dir=str(model_dir or ""), target_dir="", workload=to_data(workload), tolerances=to_data(Tolerances())
    )


def recordings(num: int, workload: Workload = WORKLOAD, *, pool: Pool = Pool.visible, seed: int = 1) -> list[Request]:
    return list(itertools.islice(streaming_asr_stream(workload, pool=pool, seed=seed), num))


def request_of(num_chunks: int, *, chunk_ms: int = 500, name: str = "r") -> Request:
    payload = {"chunk_ms": chunk_ms, "duration_ms": num_chunks * chunk_ms, "noise_seed": 1, "pieces": [[0, 9000, 900]]}
    return Request(request_id=name, payload=payload)


def transcript(end_ms: int, ids: Sequence[int] = (5,), text: str = "") -> dict[str, Any]:
    return {"audio_end_ms": end_ms, "text": text or f"t{end_ms}", "token_ids": list(ids)}


def record_of(
    num_chunks: int, *, delays: Sequence[float | None], final_s: float | None = 0.1, start_s: float = 10.0,
    error: str | None = None, name: str = "r", claims: Sequence[int] = (),
) -> SpeechRecord:  # fmt: skip
    """A recording whose chunk k was sent at start + 0.5 (k + 1) and whose partial came `delays[k]` later, or never.
    `claims` replaces the ends that the partials say. `final_s`: after the last chunk; None = it never came."""
    request = request_of(num_chunks, name=name)
    chunks = tuple((start_s + 0.5 * (number + 1), 500 * (number + 1)) for number in range(num_chunks))
    came = [
        (sent_s + delay, end_ms) for (sent_s, end_ms), delay in zip(chunks, delays, strict=True) if delay is not None
    ]
    ends = list(claims) or [end_ms for _, end_ms in came]
    committed_s = chunks[-1][0]
    marks = [(at_s, {"partial_ms": end_ms}) for (at_s, _), end_ms in zip(came, ends, strict=True)]
    final = None
    if final_s is not None:
        final = transcript(500 * num_chunks)
        marks.append((committed_s + final_s, {"final_ms": 500 * num_chunks}))
    end_s = max([committed_s, *(at_s for at_s, _ in marks)])
    return SpeechRecord(
        request=request, output={"partials": [transcript(end_ms) for end_ms in ends], "final": final},
        marks=tuple(sorted(marks, key=lambda mark: mark[0])), chunks=chunks, committed_s=committed_s, error=error,
        scheduled_s=start_s, sent_s=start_s, end_s=end_s,
    )  # fmt: skip
