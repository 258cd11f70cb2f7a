"""Ranks beside one process that holds the whole model: the same logits, and an end for all of them."""

from __future__ import annotations

import dataclasses
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model, batch_of, document_of
from runtime.parameters import Parameters
from runtime.ranks import Ranks
from torch import Tensor

PROMPT = [9, 27, 5, 41, 33, 8, 19, 60, 2, 77, 14, 3]
TOLERANCE = 1e-4 if "packed" not in str(Parameters()) else 0.03
END_S = 30.0


def batch(token_ids: list[int], *, start: int = 0) -> Batch:
    num = len(token_ids)
    return Batch(
        token_ids=torch.tensor(token_ids), positions=torch.arange(start, start + num),
        segments=(Segment(slot=0, start_row=0, num_rows=num, start_position=start),), logits_rows=tuple(range(num)),
    )  # fmt: skip


def logits_of(model: Model, config: ModelConfig) -> Tensor:
    """Of a prompt in two chunks and two single tokens."""
    cache = KVCache(config, parameters=Parameters())
    assert cache.allocate(32) is not None
    steps = [(0, 5), (5, 5), (10, 1), (11, 1)]
    return torch.cat([model.forward(batch(PROMPT[at : at + num], start=at), cache).clone() for at, num in steps])


def test_ranks_give_the_logits_of_one_process(model_dir: Path) -> None:
    whole = weights.whole_config(model_dir)
    alone = Model(
        whole, weights.load_shard(model_dir, ranks=Ranks(rank=0, world_size=1)), parameters=Parameters()
    )
    expected = logits_of(alone, whole)
    shard = weights.load_weights(model_dir)
    assert shard.ranks.world_size == Parameters().tensor_parallel_size > 1
    own = weights.load_config(model_dir)
    together = logits_of(Model(own, shard, parameters=Parameters()), own)
    shard.ranks.close()
    assert together.shape == expected.shape == (len(PROMPT), whole.vocab_size)
    assert float((together - expected).norm() / expected.norm()) < TOLERANCE


def test_every_weight_is_on_exactly_the_ranks_that_need_it(model_dir: Path) -> None:
    """Put together again the parts are the checkpoint: a rank that read another one's part would be seen."""
    num_ranks = Parameters().tensor_parallel_size
    whole = weights.load_shard(model_dir, ranks=Ranks(rank=0, world_size=1))
    parts = [weights.load_shard(model_dir, ranks=Ranks(rank=rank, world_size=num_ranks)) for rank in range(num_ranks)]
    for name, tensor in whole.items():
        layer = name.removesuffix(".weight").rpartition(".")[2]
        held = [part[name] for part in parts]
        if layer in weights.BY_COLUMNS:
            assert torch.equal(torch.cat(held, dim=1), tensor), name
        elif layer in (*weights.BY_ROWS, "q_proj", "k_proj", "v_proj", "lm_head"):
            assert torch.equal(torch.cat(held)[: len(tensor)], tensor), name
        else:
            assert all(torch.equal(each, tensor) for each in held), name


@pytest.mark.parametrize(
    ("sizes", "num_ranks", "text"),
    [
        ({"num_heads": 9}, 2, "2 ranks do not divide the model's num_heads 9"),
        ({"intermediate_size": 6}, 4, "4 ranks do not divide the model's intermediate_size 6"),
        ({"num_heads": 6, "num_kv_heads": 3}, 2, "2 ranks and the model's num_kv_heads 3: neither divides the other"),
    ],
)
def test_a_model_that_cannot_be_split_is_refused(
    model_dir: Path, sizes: dict[str, int], num_ranks: int, text: str
) -> None:
    config = dataclasses.replace(weights.whole_config(model_dir), **sizes)
    with pytest.raises(ValueError, match=text):
        weights.config_of_rank(config, num_ranks=num_ranks)


def test_more_ranks_than_kv_heads_keep_one_each(model_dir: Path) -> None:
    config = dataclasses.replace(weights.whole_config(model_dir), num_heads=8, num_kv_heads=2)
    assert weights.config_of_rank(config, num_ranks=4).num_kv_heads == 1


def test_a_step_is_told_as_it_is() -> None:
    step = batch(PROMPT, start=3)
    again = batch_of(document_of(step))
    assert again.segments == step.segments
    assert again.logits_rows == step.logits_rows
    assert torch.equal(again.token_ids, step.token_ids)
    assert torch.equal(again.positions, step.positions)


@contextmanager
def server(model_dir: Path, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[int]]]:
    """A server that answers, and the process ids of its ranks."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port = holder.getsockname()[1]
    argv = [sys.executable, "-m", "runtime", "--model-dir", str(model_dir), "--port", str(port)]
    with log.open("wb") as stream:
        process = subprocess.Popen(argv, cwd=Path(__file__).parents[1], stdout=stream, stderr=stream)
    try:
        await_health(f"http://127.0.0.1:{port}/health", process, log)
        yield process, children(process.pid)
    finally:
        process.kill()
        process.wait()


def await_health(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def await_end(pids: list[int]) -> None:
    deadline = time.monotonic() + END_S
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline, "a rank stays behind"
        time.sleep(0.05)


def test_a_server_that_is_told_to_end_ends_its_ranks(model_dir: Path, tmp_path: Path) -> None:
    with server(model_dir, tmp_path / "log") as (process, ranks):
        assert len(ranks) == Parameters().tensor_parallel_size - 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(END_S) == 0, (tmp_path / "log").read_text()
        await_end(ranks)
        assert "Traceback" not in (tmp_path / "log").read_text()


def test_ranks_do_not_outlive_a_server_that_is_killed(model_dir: Path, tmp_path: Path) -> None:
    with server(model_dir, tmp_path / "log") as (process, ranks):
        process.kill()
        await_end(ranks)


def test_the_death_of_a_rank_ends_the_server_and_says_so(model_dir: Path, tmp_path: Path) -> None:
    with server(model_dir, tmp_path / "log") as (process, ranks):
        subprocess.run(["kill", "-KILL", str(ranks[0])], check=True)
        assert process.wait(END_S) == 1, (tmp_path / "log").read_text()
        assert "rank 1 has ended with status -9; the server cannot compute without it" in (tmp_path / "log").read_text()
        await_end(ranks)
