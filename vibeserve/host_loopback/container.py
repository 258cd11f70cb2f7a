"""A container on this machine's own docker daemon, of an image that holds nothing: what is here is mounted into it,
read-only, so that nothing has to be pulled or built."""

from __future__ import annotations

import contextlib
import io
import secrets
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vibeserve import spec
from vibeserve.hosts.container import RUN_LABEL, explained
from vibeserve.hosts.container_exec import open_api
from vibeserve.sandbox.layout import ETC_PATHS, SYSTEM_PATHS, interpreter_prefixes

IMAGE, TAG = "vibeserve-loopback", "empty"
OPTIONS = ("network=none", "security_opt=seccomp=unconfined", "init=false")
"""the wall has a filter of its own, and asks for calls that docker's refuses; docker's init has no place to be mounted
where all of /usr is this system's"""
FOLDERS = ("dev", "etc", "proc", "root", "sys", "tmp")


@dataclass(frozen=True, kw_only=True)
class Loopback:
    """The daemon, and where files of ours lie in its containers."""

    url: str
    root: str

    def declared(self) -> spec.Host:
        """A host of it, with this interpreter."""
        folders = [*interpreter_prefixes(Path(sys.executable)), *map(Path, (*SYSTEM_PATHS, *ETC_PATHS))]
        shown = [path for path in folders if path.exists() and not path.is_symlink()]
        return spec.Host(
            kind="docker", address=self.url, image=f"{IMAGE}:{TAG}", python=sys.executable, root=self.root,
            options=[*OPTIONS, *(f"volumes={path}:{path}:ro" for path in shown)],
        )  # fmt: skip

    def kill(self) -> None:
        """Every container of ours, as a daemon or a machine that goes away."""
        api = open_api(self.url)
        for left in api.containers(filters={"label": RUN_LABEL, "ancestor": f"{IMAGE}:{TAG}"}):
            api.remove_container(left["Id"], force=True)


@contextlib.contextmanager
def running_container(url: str = "") -> Iterator[Loopback]:
    """The daemon at `url`, with that image. HostLostError where none answers, or the SDK is not installed."""
    with explained(url=url, image=IMAGE):
        api = open_api(url)
        api.ping()
        api.import_image_from_data(empty_image(), repository=IMAGE, tag=TAG)
    try:
        yield Loopback(url=url, root=f"/vibeserve-{secrets.token_hex(8)}")
    finally:
        with explained(url=url, image=IMAGE):
            api.remove_image(f"{IMAGE}:{TAG}", force=True)


def empty_image() -> bytes:
    """A tar of the folders that programs expect, and of the links at the root of this system."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for name in FOLDERS:
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(folder)
        for path in (Path(text) for text in SYSTEM_PATHS):
            if path.is_symlink():
                link = tarfile.TarInfo(path.name)
                link.type, link.linkname = tarfile.SYMTYPE, str(path.readlink())
                archive.addfile(link)
    return written.getvalue()
