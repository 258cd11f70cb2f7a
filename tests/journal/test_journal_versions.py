"""Journals of other versions: upgraded, or refused with the version named and left as they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from vibeserve import journal as journal_module
from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import VersionError
from vibeserve.journal import Journal, JournalError, read_events
from vibeserve.lease import Owner


def line(**record: Any) -> bytes:
    """A whole record of any version, with its checksum."""
    body = json.dumps(record, sort_keys=True, separators=(",", ":"))[:-1]
    return f'{body},"crc32":"{crc32(body.encode()):08x}"}}\n'.encode()


def of_version(version: object, *, seq: int = 0) -> bytes:
    return line(seq=seq, time_s=1.0, kind="round", data={"number": seq}, schema_version=version)


@pytest.mark.parametrize("version", [0, 99])
def test_another_version_is_refused_by_name_and_never_taken_for_a_torn_tail(tmp_path: Path, version: int) -> None:
    """The smallest input that lost a journal: one whole record of a newer version, cut off when it was opened."""
    path = tmp_path / "j"
    for text in (of_version(version), of_version(1) + of_version(version, seq=1)):
        path.write_bytes(text)
        for read in (Journal.open, read_events):
            with pytest.raises(JournalError) as caught:
                read(path)
            assert f"j holds a record of schema_version {version} (line " in str(caught.value)
            assert "this version of VibeServe reads 1; the file was left as it is" in str(caught.value)
            assert "next: go on with the version of VibeServe that wrote it" in str(caught.value)
        assert path.read_bytes() == text


def test_an_older_version_is_upgraded_as_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "kind": "round", "data": {"number": record["data"]}}

    monkeypatch.setitem(journal_module.UPGRADES, 0, named)
    path = tmp_path / "j"
    old = line(seq=0, time_s=1.0, kind="iteration", data=7, schema_version=0)
    path.write_bytes(old)
    with Journal.open(path) as journal:
        assert [(event.kind, event.data) for event in journal.events()] == [("round", {"number": 7})]
        journal.append("round", {"number": 8})
    assert path.read_bytes().startswith(old), "the file is append-only, whatever its version"
    assert [event.data["number"] for event in read_events(path)] == [7, 8]
    path.write_bytes(of_version(-1))
    with pytest.raises(JournalError, match=r"schema_version -1 .* reads 1, and 0 upgraded"):
        read_events(path)


@pytest.mark.parametrize("version", [0, 99])
def test_a_document_of_another_version_is_refused_by_name(tmp_path: Path, version: int) -> None:
    path = tmp_path / "owner.json"
    write_document(path, Owner.myself(run="r"))
    path.write_text(path.read_text().replace('"schema_version": 1', f'"schema_version": {version}'))
    with pytest.raises(VersionError) as caught:
        read_document(path, Owner)
    assert str(caught.value).splitlines()[0] == (
        f"{path} has schema_version {version}; this version of VibeServe reads 1"
    )
    assert caught.value.exit_code == 5
