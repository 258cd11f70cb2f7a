"""Child process: probe a served API of images (`python -m ... JOB.json`): its protocol, and what must be alike.

Reads a `ProbeJob`, prints a `ProbeReport`. Pictures are judged on the timed requests; here the same request must give
the same image whatever came before or beside it, and each field must change the image as it must.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vibeserve.contract import SendError
from vibeserve.core.documents import canonical_json, read_document
from vibeserve.modalities.image import PROBES
from vibeserve.modalities.image.probe_draw import Drawer, alike, concurrently, unlike
from vibeserve.modalities.image.wire import IMAGES_PATH
from vibeserve.modalities.probe_http import ProbeFailure, expect, expect_error
from vibeserve.modalities.probe_run import MALFORMED, run_check, shape_text
from vibeserve.modalities.probes import ProbeJob, ProbeReport, ProbeSuite

BAD: dict[str, dict[str, Any]] = {
    "no prompt": {"prompt": None},
    "an empty prompt": {"prompt": ""},
    "a prompt that is no text": {"prompt": ["a", "b"]},
    "a prompt longer than the model": {"prompt": "word " * 200_000},
    "guidance below 1": {"guidance": 0.5},
    "guidance as a text": {"guidance": "4"},
    "a seed below 0": {"seed": -1},
    "a seed that is no number": {"seed": True},
    "a seed beyond all": {"seed": 1 << 70},
    "several images": {"n": 2},
    "no image": {"n": 0},
    "an answer by URL": {"response_format": "url"},
}
NUM_ABANDONED = 4
MUCH_GUIDANCE = 9.0


def check_health(drawer: Drawer) -> None:
    drawer.http.expect_ok("/health")


def check_live(drawer: Drawer) -> None:
    drawer.http.expect_ok("/live")


def check_metrics(drawer: Drawer) -> None:
    drawer.http.expect_metrics()


def check_models(drawer: Drawer) -> None:
    expect(bool(drawer.model), "no model is listed")


def check_repeats(drawer: Drawer) -> None:
    """The same request again is the same image, and the answer holds one."""
    one = drawer.first(drawer.bodies[0])
    alike(one, drawer.drawn(drawer.bodies[0]), "the same request twice gives two images")


def check_a_b_a(drawer: Drawer) -> None:
    """The same request before and after another: nothing of the other stays behind."""
    first, other = drawer.first(drawer.bodies[0]), drawer.first(drawer.bodies[1])
    alike(first, drawer.drawn(drawer.bodies[0]), "the same request gives another image after one in between")
    unlike(first, other, "two requests that share nothing give the same image")


def check_concurrent(drawer: Drawer) -> None:
    """Several at once give each its own image."""
    bodies = drawer.bodies[:3]
    alone = [drawer.first(body) for body in bodies]
    for one, together in zip(alone, concurrently(drawer, bodies), strict=True):
        alike(one, together, "several requests at once give other images than one by one")


def check_sizes(drawer: Drawer) -> None:
    """The size that is asked for, and without one the model's own; one that cannot be drawn is refused, not scaled."""
    asked = drawer.bodies[0]
    wide, high = drawer.size
    expect(drawer.first(asked).size == drawer.size, f"an image of {wide}x{high} has another size")
    expect(drawer.drawn({**asked, "size": None}).size == drawer.size, "without a size the image is not the model's own")
    for size in ("17x17", f"{wide * 64}x{high * 64}", "big", 512, "0x0", f"-{wide}x{high}"):
        drawer.refused({**asked, "size": size}, f"size {size!r}")


def check_seeds(drawer: Drawer) -> None:
    """Another seed is another image, and the largest are none of the others in disguise."""
    asked = drawer.bodies[0]
    one = drawer.drawn({**asked, "seed": 1})
    unlike(one, drawer.drawn({**asked, "seed": 2}), "another seed gives the same image")
    for seed in (1 + (1 << 31), (1 << 32) - 1):
        unlike(one, drawer.drawn({**asked, "seed": seed}), "a large seed is taken for a smaller one")
    drawer.refused({**asked, "seed": 1 + (1 << 32)}, "a seed beyond 32 bits")


def check_steps(drawer: Drawer) -> None:
    """One step more is another image: the number of steps is what is asked for."""
    asked = drawer.bodies[0]
    images = [drawer.first({**asked, "steps": steps}) for steps in (1, 2, 3)]
    for fewer, more in ((0, 1), (1, 2), (0, 2)):
        unlike(images[fewer], images[more], "another number of steps gives the same image")


def check_guidance(drawer: Drawer) -> None:
    """Guidance is used, and 1 is the prompt alone."""
    asked = drawer.bodies[0]
    images = [drawer.first({**asked, "guidance": guidance}) for guidance in (1, asked["guidance"], MUCH_GUIDANCE)]
    for one, other in ((0, 1), (1, 2), (0, 2)):
        unlike(images[one], images[other], "other guidance gives the same image")


def check_prompts(drawer: Drawer) -> None:
    """The end of the prompt counts."""
    asked = drawer.bodies[0]
    shorter = {**asked, "prompt": asked["prompt"][: len(asked["prompt"]) * 2 // 3]}
    unlike(drawer.first(asked), drawer.drawn(shorter), "a prompt and its beginning give the same image")


def check_latents(drawer: Drawer) -> None:
    """Latents come where they are asked for, as many as the image has; else the image is the same without them."""
    asked = drawer.bodies[0]
    with_them, without = drawer.first(asked), drawer.drawn({**asked, "return_latents": False})
    expect(bool(with_them.latents), "no latents where they were asked for")
    expect(not without.latents, "latents where nobody asked for them")
    expect(with_them.png == without.png, "asking for latents changes the image")


def check_default_seed(drawer: Drawer) -> None:
    """Without a seed the server draws one, and tells it: with that seed the image comes again."""
    asked = {name: value for name, value in drawer.bodies[0].items() if name != "seed"}
    one, other = drawer.drawn(asked), drawer.drawn(asked)
    unlike(one, other, "without a seed two images are the same")
    expect(type(one.seed) is int, "the seed that was drawn is not told")
    alike(one, drawer.drawn({**asked, "seed": one.seed}), "the seed that was told gives another image")


def check_bad_requests(drawer: Drawer) -> None:
    """What cannot be served is refused with a 4xx and an error object."""
    bad: dict[str, dict[str, Any]] = {
        "no steps": {"steps": 0},
        "half a step": {"steps": 2.5},
        "too many steps": {"steps": 10**9},
        "steps as a text": {"steps": "10"},
        "latents that are no boolean": {"return_latents": "yes"},
    }
    expect_refused(drawer, bad)


def expect_refused(drawer: Drawer, own: Mapping[str, dict[str, Any]]) -> None:
    """Changes of a request that no model draws, and `own` ones, by what they are; then it draws as before."""
    asked = drawer.bodies[0]
    for what, change in (*BAD.items(), *own.items()):
        drawer.refused({**asked, **change}, what)
    drawer.http.expect_no_json_refused(IMAGES_PATH)
    status, _, body = drawer.http.ask("POST", IMAGES_PATH, body=b"[]")
    expect_error("a body that is no object", status, json.loads(body))
    drawer.drawn(asked)


def check_disconnect(drawer: Drawer) -> None:
    """Clients that go away must not keep others waiting for ever."""
    for number in range(NUM_ABANDONED):
        body = {**drawer.bodies[1], "seed": number}
        drawer.http.abandon(IMAGES_PATH, json.dumps(body).encode())
    drawer.drawn(drawer.bodies[0])


def check_unknown_model(drawer: Drawer) -> None:
    drawer.refused({**drawer.bodies[0], "model": "no-such-model"}, "an unknown model", wanted=404)


def check_unknown_route(drawer: Drawer) -> None:
    status, _, body = drawer.http.ask("GET", "/no-such-route")
    expect_error("an unknown route", status, json.loads(body), wanted=404)


def check_request_id(drawer: Drawer) -> None:
    drawer.http.expect_request_id(IMAGES_PATH, b"{}")


CHECK_FUNCTIONS: dict[str, Callable[[Drawer], None]] = {
    name.removeprefix("check_"): function for name, function in list(globals().items()) if name.startswith("check_")
}


def main(argv: Sequence[str]) -> int:
    return run_probes(argv, suite=PROBES, functions=CHECK_FUNCTIONS, make=Drawer)


def run_probes(
    argv: Sequence[str], *, suite: ProbeSuite, functions: Mapping[str, Callable[[Any], None]],
    make: Callable[..., Drawer],
) -> int:  # fmt: skip
    """Read the job, run the suite's checks by their functions, print the report."""
    job = read_document(Path(argv[0]), ProbeJob)
    deadline_s = time.monotonic() + job.timeout_s
    drawer = make(job, deadline_s=deadline_s)
    checks = tuple(
        run_check(name, partial(_detail, functions[name], drawer), deadline_s=deadline_s) for name in suite.checks
    )
    sys.stdout.write(canonical_json(ProbeReport(checks=checks)) + "\n")
    return 0


def _detail(check: Callable[[Any], None], drawer: Drawer) -> str:
    """Empty when the check holds."""
    try:
        check(drawer)
    except ProbeFailure as error:
        return str(error)
    except SendError as error:
        return str(error)[:300]
    except (OSError, http.client.HTTPException) as error:
        return f"no answer: {type(error).__name__}"
    except MALFORMED as error:
        return shape_text(error)
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
