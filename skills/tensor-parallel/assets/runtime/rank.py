"""`python -m runtime.rank`: one rank beside the server's own; `ranks.Ranks.start` starts it, nobody else does."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from . import placement, weights
from .kv_cache import KVCache
from .model import Model, batch_of
from .parameters import Parameters
from .ranks import Ranks


def main() -> int:
    """Run the steps that the server tells, until it is gone."""
    parser = argparse.ArgumentParser(prog="python -m runtime.rank", description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--store", type=Path, required=True, help="file over which the ranks find each other")
    arguments = parser.parse_args()
    placement.configure_threads(arguments.threads)
    parameters = Parameters()
    ranks = Ranks(rank=arguments.rank, world_size=parameters.tensor_parallel_size)
    config = weights.load_config(arguments.model_dir)
    kv_cache = KVCache(config, parameters=parameters)
    model = Model(config, weights.load_shard(arguments.model_dir, ranks=ranks), parameters=parameters)
    for told in ranks.steps():
        if told["do"] == "meet":
            ranks.meet(arguments.store)
        else:
            model.forward(batch_of(told), kv_cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
