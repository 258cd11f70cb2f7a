"""A cache of models that the runs of this folder share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VIBESERVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
