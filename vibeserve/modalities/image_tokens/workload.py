"""Images token by token: what is asked, and how it is sent. Windows are measured as all images' are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from vibeserve.contract import Context, Pool, Request
from vibeserve.modalities.image.workload import PictureWorkload, with_payload
from vibeserve.modalities.image_tokens.wire import body_of, read_answer


def configure(context: Context) -> TokenImageWorkload:
    return TokenImageWorkload(context, body_of=body_of, read_answer=read_answer)


class TokenImageWorkload(PictureWorkload):
    """See `contract.Workload`. An image has all its tokens: none is cheaper than another. Every request asks for them,
    as every request for text does: without them nothing could be judged."""

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        from vibeserve.weights import load_tokenizer
        from vibeserve.workloads.text_to_image import text_to_codes_stream

        folder = Path(self._context.model_dir)
        return text_to_codes_stream(
            self.declared, tokenizer=load_tokenizer(folder), size=size_of(folder), pool=pool, seed=seed
        )

    def shortened(self, request: Request) -> Request:
        return request

    def audited(self, request: Request) -> Request:
        """Prompts of so many characters that every prompt has them: all are then of one shape."""
        return with_payload(request, prompt=request.payload["prompt"][: self.declared.prompt_tokens_min])


def size_of(model_dir: Path) -> str:
    """The model's only size, `WIDTHxHEIGHT` in pixels."""
    codes = json.loads((model_dir / "f32" / "config.json").read_text(encoding="utf-8"))["vq_config"]
    side = codes["num_patches"] << (len(codes["channel_multiplier"]) - 1)
    return f"{side}x{side}"
