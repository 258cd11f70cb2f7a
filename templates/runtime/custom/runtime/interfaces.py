"""The nouns that cross module borders, and what the two modules of the model define.

    api      PATH, EXAMPLE, parse(body), render(result)       how the route looks; see `ApiLike`
    model    load(path, device, dtype) -> ModelLike           what is computed

Nothing else of them is used. Every other module is the same for all models. `http` and `placement` may be replaced,
too: `http` exports create_app(service), `placement` exports configure_threads(num_threads).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request to the model."""

    request_id: str
    payload: Any
    """what `api.parse` returned"""


class ModelLike(Protocol):
    """A loaded model. Called from the engine's thread only, one request at a time."""

    def run(self, request: Request, /) -> Any:
        """The answer, as `api.render` takes it."""
        ...


class LoadModel(Protocol):
    """`model.load`."""

    def __call__(self, path: str, device: str, dtype: str) -> ModelLike:
        """The model whose files lie in folder `path`. `device`: cpu, cuda, mps; `dtype`: float32, bfloat16, float16."""
        ...


class ApiLike(Protocol):
    """`api`."""

    @property
    def PATH(self) -> str:
        """Route of the model, such as /v1/embeddings; it takes POST with a JSON object."""
        ...

    @property
    def EXAMPLE(self) -> dict[str, Any]:
        """A body that the route answers with a 200; the tests send it, with this server's `model`."""
        ...

    @property
    def parse(self) -> Callable[[dict[str, Any]], Any]:
        """Body -> `Request.payload`. Raises ValueError, whose text the client gets with a 400."""
        ...

    @property
    def render(self) -> Callable[[Any], Any]:
        """What the model's `run` returned -> body of the reply, as JSON data."""
        ...
