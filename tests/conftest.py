"""Fixtures that every part's tests share."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vibeserve.core.paths import data_dir
from vibeserve.spec import Model

collect_ignore = ["recordings", "exploits_open"]
"""trees of candidates: their tests are data here"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: the last one to begin is then a short one, and no core waits for it."""
    longest = {item.path for item in items if item.get_closest_marker("longest")}
    items.sort(key=lambda item: item.path not in longest)


@pytest.fixture(scope="session", autouse=True)
def own_leases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tests of a session queue among themselves only, whatever else runs on the machine."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VIBESERVE_LEASES", str(tmp_path_factory.mktemp("leases")))
        yield


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A shell starts what runs in the background with SIGINT ignored, and children inherit that: tests send it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_model() -> Model:
    """The declared model of target `tiny_cpu`: two layers, seeded random weights."""
    from omegaconf import OmegaConf

    declared = OmegaConf.merge(
        OmegaConf.structured(Model), OmegaConf.load(data_dir("conf") / "model" / "tiny_llama.yaml")
    )
    model = OmegaConf.to_object(declared)
    assert isinstance(model, Model)
    return model


@pytest.fixture(scope="session")
def tiny_model_dir(tiny_model: Model) -> Path:
    """Folder of the tiny model (`weights.json`, `f32/`, `bf16/`), kept between sessions under the temporary folder."""
    from vibeserve.weights import materialise

    return materialise(tiny_model, cache=Path(tempfile.gettempdir()) / "vibeserve-tests").path
