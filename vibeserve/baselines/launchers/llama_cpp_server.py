"""llama.cpp's HTTP server out of the wheel `xllamacpp`, which has no command of its own. Runs in that environment.

Arguments: --model FILE --host H --port P --threads T --slots N --context-tokens N
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from typing import Any


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--slots", type=int, required=True)
    parser.add_argument("--context-tokens", type=int, required=True, help="per slot")
    arguments = parser.parse_args()
    # blocked before the library starts its threads, so that every thread leaves the signal to this one
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    library = importlib.import_module("xllamacpp")
    server = library.Server(parameters(library, arguments))
    sys.stdout.write(f"listening on {server.listening_address}\n")
    sys.stdout.flush()
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    return 0


def parameters(library: Any, arguments: argparse.Namespace) -> Any:
    """llama-server's settings: continuous batching over `slots`, the model wholly on the CPU, no web page."""
    params = library.CommonParams()
    params.model.path = arguments.model
    params.hostnames = [arguments.host]
    params.port = arguments.port
    params.cpuparams.n_threads = arguments.threads
    params.cpuparams_batch.n_threads = arguments.threads
    params.n_parallel = arguments.slots
    params.n_ctx = arguments.slots * arguments.context_tokens
    params.cont_batching = True
    params.n_gpu_layers = 0
    params.ui = False
    return params


if __name__ == "__main__":
    sys.exit(main())
