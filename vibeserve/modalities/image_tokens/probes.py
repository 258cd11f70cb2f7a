"""Child process: probe a served API of images drawn token by token (`python -m ... JOB.json`).

What does not depend on how an image is drawn is asked as of every image. An image has all its tokens here, so that
fewer of them are asked for than of a model that draws in as few steps as one likes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from vibeserve.contract import Request
from vibeserve.modalities.image import probes as images
from vibeserve.modalities.image.probe_draw import Drawer, Image, alike, unlike
from vibeserve.modalities.image.wire import image_in
from vibeserve.modalities.image_tokens import PROBES
from vibeserve.modalities.image_tokens.wire import body_of, read_answer
from vibeserve.modalities.probe_http import expect

SHARED = (
    "health",
    "live",
    "metrics",
    "models",
    "repeats",
    "a_b_a",
    "concurrent",
    "guidance",
    "prompts",
    "disconnect",
    "unknown_model",
    "unknown_route",
    "request_id",
)
MUCH_TEMPERATURE = 4.0


class TokenDrawer(Drawer):
    def _body_of(self, request: Request) -> dict[str, Any]:
        return body_of(request, model=self.model)

    def _image_of(self, answer: bytes) -> Image:
        found = read_answer(answer)
        return Image(png=found["png"], token_ids=tuple(found["token_ids"]), seed=image_in(answer).get("seed"))


def check_own_size(drawer: TokenDrawer) -> None:
    """The model's only size; another one is refused, not scaled to."""
    asked = drawer.bodies[0]
    wide, high = drawer.size
    expect(drawer.first(asked).size == drawer.size, f"an image of {wide}x{high} has another size")
    for size in ("17x17", f"{wide // 2}x{high // 2}", f"{wide * 2}x{high * 2}", "big", 512, "0x0"):
        drawer.refused({**asked, "size": size}, f"size {size!r}")


def check_far_seeds(drawer: TokenDrawer) -> None:
    """Another seed is another image, and the largest is none of the others in disguise."""
    asked = drawer.bodies[0]
    one = drawer.drawn({**asked, "seed": 1})
    unlike(one, drawer.drawn({**asked, "seed": (1 << 32) - 1}), "another seed gives the same image")
    unlike(one, drawer.first(asked), "another seed gives the same image")
    drawer.refused({**asked, "seed": 1 + (1 << 32)}, "a seed beyond 32 bits")


def check_temperatures(drawer: TokenDrawer) -> None:
    """The temperature is used; without one the likeliest code each comes, whatever the seed."""
    asked = drawer.bodies[0]
    cold, hot = (drawer.first({**asked, "temperature": temperature}) for temperature in (0, MUCH_TEMPERATURE))
    unlike(cold, hot, "another temperature gives the same image")
    again = drawer.drawn({**asked, "temperature": 0, "seed": asked["seed"] ^ 1})
    alike(cold, again, "at temperature 0 another seed gives another image")


def check_token_ids(drawer: TokenDrawer) -> None:
    """Codes come where they are asked for; else the image is the same without them."""
    asked = drawer.bodies[0]
    with_them, without = drawer.first(asked), drawer.drawn({**asked, "return_token_ids": False})
    are_whole = all(type(code) is int and code >= 0 for code in with_them.token_ids)
    expect(bool(with_them.token_ids) and are_whole, "no token ids where they were asked for")
    expect(not without.token_ids, "token ids where nobody asked for them")
    expect(with_them.png == without.png, "asking for token ids changes the image")


def check_told_seed(drawer: TokenDrawer) -> None:
    """Without a seed the server draws one, and tells it: with that seed the image comes again."""
    asked = {name: value for name, value in drawer.bodies[0].items() if name != "seed"}
    one = drawer.drawn(asked)
    unlike(one, drawer.first(drawer.bodies[0]), "without a seed the image is that of a given one")
    expect(type(one.seed) is int, "the seed that was drawn is not told")
    alike(one, drawer.drawn({**asked, "seed": one.seed}), "the seed that was told gives another image")


def check_bad_requests(drawer: TokenDrawer) -> None:
    """What cannot be served is refused with a 4xx and an error object."""
    images.expect_refused(
        drawer,
        {
            "steps of a model that has none": {"steps": 10},
            "a temperature below 0": {"temperature": -0.5},
            "a temperature as a text": {"temperature": "1"},
            "a temperature beyond all": {"temperature": 1e6},
            "token ids that are no boolean": {"return_token_ids": "yes"},
        },
    )


_OWN = {name.removeprefix("check_"): each for name, each in list(globals().items()) if name.startswith("check_")}
CHECK_FUNCTIONS: dict[str, Callable[[Any], None]] = {name: images.CHECK_FUNCTIONS[name] for name in SHARED} | _OWN


def main(argv: Sequence[str]) -> int:
    return images.run_probes(argv, suite=PROBES, functions=CHECK_FUNCTIONS, make=TokenDrawer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
