"""A container of a docker daemon. It runs `cat` on a standard input that this process holds: when this process is gone,
however it ends, so is the container, and what was in it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from vibeserve import spec
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.container_exec import open_api
from vibeserve.hosts.piped import PipedHost

RUN_LABEL = "vibeserve.run"
HOLD = ["/bin/sh", "-c", "cat >/dev/null"]
GPUS = "gpus"
OF_THE_CONTAINER = ("user",)
BOOLEANS = {"true": True, "false": False}
NAMES = {"network": "network_mode"}
SEVERAL = {"volumes": "binds", "security_opt": "security_opt"}
"""options by the SDK's names for them; those that may be given several times"""
SDK_MISSING = "the docker SDK is not installed\nnext: pip install 'vibeserve[docker]'"


class DockerWay:
    """The way into one container; it is started by the first command."""

    doctor = "vibeserve doctor host=docker host.image=..."
    is_line_buffered = False
    idle_s = 0.0

    def __init__(self, *, url: str, image: str, options: Sequence[str]) -> None:
        self._url, self._image, self._options = url, image, list(options)
        self._run = "none"
        self.generation = 0
        self._container = ""
        self._holder: Any = None
        self._lock = threading.Lock()

    @property
    def where(self) -> str:
        return f"container {self._container[:12]} of {self._image}" if self._container else f"image {self._image}"

    def named(self, run: str) -> None:
        """Remove what an earlier controller of the same run left running."""
        self.release()
        self._run = run
        with self._explained():
            api = open_api(self._url)
            for left in api.containers(filters={"label": f"{RUN_LABEL}={run}"}):
                api.remove_container(left["Id"], force=True)

    def argv(self, command: str) -> list[str]:
        """A command in the container. HostLostError where there is no daemon, no image or no SDK."""
        with self._lock:
            if not self._is_running():
                self._start()
            program = str(Path(__file__).with_name("container_exec.py"))
            return [sys.executable, "-P", program, self._url, self._container, command]

    def release(self) -> None:
        """Remove the container."""
        with self._lock:
            container, self._container = self._container, ""
            holder, self._holder = self._holder, None
            if holder is not None:
                holder.close()
            if container:
                with self._explained(gone_is_fine=True):
                    open_api(self._url).remove_container(container, force=True)

    def _is_running(self) -> bool:
        if not self._container:
            return False
        found: dict[str, Any] = {}
        with self._explained(gone_is_fine=True):
            found = open_api(self._url).inspect_container(self._container)
        return bool(found and found["State"]["Running"])

    def _explained(self, *, gone_is_fine: bool = False) -> AbstractContextManager[None]:
        return explained(url=self._url, image=self._image, gone_is_fine=gone_is_fine)

    def _start(self) -> None:
        with self._explained():
            api = open_api(self._url)
            of_host, of_container = container_options(self._options)
            made = api.create_container(
                self._image, entrypoint=HOLD[:1], command=HOLD[1:], stdin_open=True, labels={RUN_LABEL: self._run},
                host_config=api.create_host_config(auto_remove=True, **{"init": True, **of_host}), **of_container,
            )  # fmt: skip
            self._holder = api.attach_socket(made["Id"], params={"stdin": 1, "stream": 1})
            api.start(made["Id"])
        self._container = made["Id"]
        self.generation += 1


@contextmanager
def explained(*, url: str, image: str, gone_is_fine: bool = False) -> Iterator[None]:
    """The SDK's errors as ours."""
    try:
        from docker.errors import APIError, DockerException, ImageNotFound, NotFound
    except ImportError:
        raise HostLostError(SDK_MISSING) from None
    try:
        yield
    except ImageNotFound:
        raise HostLostError(
            f"the docker daemon has no image {image}\nnext: docker pull or build it there; nothing is pulled"
        ) from None
    except NotFound as error:
        if not gone_is_fine:
            raise HostLostError(f"docker: {error.explanation or error}\nnext: start the same command again") from None
    except APIError as error:
        raise HostLostError(
            f"the docker daemon refuses: {error.explanation or error}\n"
            "next: host.options are the container's; docker info says what the daemon is"
        ) from None
    except (DockerException, OSError) as error:
        raise HostLostError(
            f"no docker daemon answers at {url or 'DOCKER_HOST or its socket'}: {str(error).splitlines()[0]}\n"
            "next: start one, or name another by host.address (unix:///run/user/1000/docker.sock, ssh://me@box)"
        ) from None


def container_options(options: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`host.options` as keywords of the SDK: those of the host's side, and those of the container."""
    of_host: dict[str, Any] = {}
    of_container: dict[str, Any] = {}
    for option in options:
        name, _, text = option.partition("=")
        if name == GPUS:
            from docker.types import DeviceRequest

            of_host["device_requests"] = [DeviceRequest(count=-1, capabilities=[["gpu"]])]
        elif name in SEVERAL:
            key = SEVERAL[name]
            of_host[key] = [*of_host.get(key, []), text]
        elif name in OF_THE_CONTAINER:
            of_container[name] = text
        else:
            of_host[NAMES.get(name, name)] = BOOLEANS.get(text, text)
    return of_host, of_container


class DockerHost(PipedHost):
    """See `PipedHost`."""

    kind = "docker"

    def __init__(self, declared: spec.Host) -> None:
        super().__init__(
            declared, way=DockerWay(url=declared.address, image=declared.image, options=declared.options)
        )
