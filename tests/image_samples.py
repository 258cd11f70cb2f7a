"""What the tests of images share: the tiny model, requests, and records of them."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Context, Request
from vibeserve.core.documents import to_data
from vibeserve.core.paths import data_dir
from vibeserve.modalities.image.wire import ImageRecord, output_of
from vibeserve.spec import Model, Tolerances, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORKLOAD = Workload(
    kind="text_to_image", prompt_tokens_min=16, prompt_tokens_max=32, num_steps=4, guidance_scale=3.0,
    output_tokens_min=16, output_tokens_max=16,
)  # fmt: skip


def image_model(name: str = "tiny_image") -> Model:
    """A declared model: that of target `tiny_image_cpu`, or another one."""
    from omegaconf import OmegaConf

    loaded = OmegaConf.load(data_dir("conf") / "model" / f"{name}.yaml")
    model = OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Model), loaded))
    assert isinstance(model, Model)
    return model


def tiny_image_dir() -> Path:
    """Its folder, kept between sessions under the temporary folder."""
    return _dir_of("tiny_image")


def tiny_janus_dir() -> Path:
    """That of target `tiny_janus_cpu`, which draws token by token."""
    return _dir_of("tiny_janus")


def _dir_of(name: str) -> Path:
    from vibeserve.weights import materialise

    return materialise(image_model(name), cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path


def context(model_dir: Path | None = None, workload: Workload = WORKLOAD) -> Context:
    return Context(
        model_dir=str(model_dir or ""), target_dir="", workload=to_data(workload), tolerances=to_data(Tolerances())
    )


def request_of(name: str = "r", **changes: Any) -> Request:
    payload = {"prompt": "a house by the sea", "size": "16x16", "steps": 5, "guidance": 3.0, "seed": 7}
    return Request(request_id=name, payload=payload | changes)


def picture(seed: int = 0, *, height: int = 16, width: int = 16) -> NDArray[np.uint8]:
    import numpy as np

    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def output(seed: int = 0, *, noise: float = 0.0) -> dict[str, Any]:
    """A random image with its latents; `noise` is the relative error of the latents."""
    import numpy as np

    drawn = np.random.default_rng(seed)
    latents = drawn.standard_normal((4, 2, 2)).astype(np.float32)
    return output_of(picture(seed), latents * np.float32(1 + noise))


def record_of(
    *, sent_s: float, end_s: float, name: str = "r", error: str | None = None, found: Any = None, **changes: Any
) -> ImageRecord:
    return ImageRecord(
        request=request_of(name, **changes), output=found, scheduled_s=sent_s, sent_s=sent_s, end_s=end_s, error=error
    )
