"""The journal: order, durability across SIGKILL, torn tails, damage, one writer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve.core.nouns import Outcome, Refusal
from vibeserve.errors import InfraError
from vibeserve.journal import Journal, JournalError, read_events


def write_three(path: Path) -> bytes:
    with Journal.open(path) as journal:
        for number in range(3):
            journal.append("round", {"number": number}, durable=number == 2)
    return path.read_bytes()


def test_events_come_back_in_order_as_plain_data(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    with Journal.open(path) as journal:
        assert journal.append("start", {"outcome": Outcome.ACCEPTED, "where": Path("a/b")}) == 0
        assert journal.append("refused", Refusal(gate="scan", reason_class="engine_import", text="no\nway")) == 1
        assert journal.append("start") == 2
        written = journal.events()
    with Journal.open(path) as journal:
        assert journal.events() == written
        assert [event.seq for event in journal.events("start")] == [0, 2]
        assert journal.events("start")[0].data == {"outcome": "accepted", "where": "a/b"}
        last = journal.last("refused")
        assert last is not None and last.data["reason_class"] == "engine_import"
        assert journal.last("nothing") is None
        assert journal.append("next") == 3


def test_every_line_is_json_with_schema_version_and_checksum(tmp_path: Path) -> None:
    lines = write_three(tmp_path / "j").decode().splitlines()
    for seq, line in enumerate(lines):
        record = json.loads(line)
        assert (record["schema_version"], record["seq"], len(record["crc32"])) == (1, seq, 8)


def test_any_cut_of_the_tail_leaves_a_gap_free_prefix(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = write_three(path)
    ends = [0] + [index + 1 for index, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        num_kept = sum(end <= size for end in ends) - 1
        assert len(read_events(path)) == num_kept
        with Journal.open(path) as journal:
            assert [event.seq for event in journal.events()] == list(range(num_kept))
            assert journal.truncated_bytes == size - ends[num_kept]
            assert journal.append("after") == num_kept
        assert len(read_events(path)) == num_kept + 1


def test_garbage_after_the_last_record_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "j"
    whole = write_three(path)
    path.write_bytes(whole + b"\0" * 512)
    with Journal.open(path) as journal:
        assert len(journal.events()) == 3
    assert path.read_bytes() == whole


@pytest.mark.parametrize(("seek", "what"), [(20, "checksum"), (0, "checksum")])
def test_damage_before_valid_records_is_refused_and_left_as_it_is(tmp_path: Path, seek: int, what: str) -> None:
    path = tmp_path / "j"
    damaged = bytearray(write_three(path))
    damaged[seek] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(JournalError, match=rf"j is damaged at line 1: .*{what}.*valid records follow") as caught:
        Journal.open(path)
    assert "next: restore the file from a copy" in str(caught.value)
    assert caught.value.exit_code == 5
    assert path.read_bytes() == bytes(damaged)


def test_a_missing_record_in_the_middle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    lines = write_three(path).splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with pytest.raises(JournalError, match="line 2: sequence number 2, expected 1"):
        Journal.open(path)


def test_a_second_writer_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.open(path) as journal:
        journal.append("round")
        with pytest.raises(InfraError, match="is being written by another vibeserve process"):
            Journal.open(path)
        assert len(read_events(path)) == 1
    Journal.open(path).close()


def test_nan_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j") as journal:
        with pytest.raises(ValueError, match="JSON compliant"):
            journal.append("measured", {"ratio": float("nan")})
        assert journal.append("next") == 0


def test_a_closed_journal_says_so(tmp_path: Path) -> None:
    journal = Journal.open(tmp_path / "j")
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="is closed"):
        journal.append("round")


CRASHER = """
import sys
from pathlib import Path
from vibeserve.journal import Journal
with Journal.open(Path(sys.argv[1])) as journal:
    for number in range(len(journal.events()), 6):
        journal.append("step", {"number": number}, durable=False)
"""


def test_the_crash_hook_kills_after_the_nth_append_and_a_resume_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "j"
    codes = []
    while not codes or codes[-1] != 0:
        environment = os.environ | {"VIBESERVE_CRASH_AT": "2"}
        codes.append(
            subprocess.run([sys.executable, "-c", CRASHER, str(path)], env=environment, check=False).returncode
        )
        assert len(codes) < 9
    # six events, two a life: the third life dies at the last append, the fourth finds nothing to do
    assert codes == [-signal.SIGKILL] * 3 + [0]
    assert [event.data["number"] for event in read_events(path)] == list(range(6))
