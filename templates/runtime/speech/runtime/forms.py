"""Bodies of multipart/form-data (RFC 7578), as the transcription route takes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

BOUNDARY = re.compile(r'boundary="?([^";,]{1,200})"?', re.IGNORECASE)
NAME = re.compile(r'[;\s]name="([^"]*)"')
FILE_NAME = re.compile(r'[;\s]filename="([^"]*)"')


class FormError(ValueError):
    """What is no such form; the text is for the client."""


@dataclass(frozen=True, slots=True)
class Part:
    data: bytes
    file_name: str = ""

    @property
    def text(self) -> str:
        return self.data.decode(errors="replace")


def read_form(body: bytes, *, content_type: str) -> dict[str, Part]:
    """Parts by name; of a name that comes twice the last one. Raises FormError."""
    found = BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or found is None:
        raise FormError("the body is multipart/form-data with a boundary")
    delimiter = b"--" + found[1].encode("latin-1", errors="replace")
    sections = (b"\r\n" + body).split(b"\r\n" + delimiter)
    if len(sections) < 2 or not sections[-1].startswith(b"--"):
        raise FormError("the form does not end with its boundary")
    parts: dict[str, Part] = {}
    for section in sections[1:-1]:
        head, end, data = section.partition(b"\r\n\r\n")
        disposition = _disposition(head)
        name = NAME.search(disposition)
        if not end or name is None:
            raise FormError("a part of the form has no name")
        file_name = FILE_NAME.search(disposition)
        parts[name[1]] = Part(data, file_name[1] if file_name else "")
    return parts


def _disposition(head: bytes) -> str:
    lines = head.decode("utf-8", errors="replace").split("\r\n")
    return next((line for line in lines if line.lower().startswith("content-disposition:")), "")
