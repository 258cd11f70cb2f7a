"""`python -m runtime --model-dir DIR`: load the model, serve it, drain on SIGTERM."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import threading
import time
from pathlib import Path

import uvicorn

from . import placement, weights
from .api import Api
from .decoder import PixelDecoder
from .engine import Engine
from .http import create_app
from .metrics import Metrics
from .model import Model
from .parameters import Parameters
from .sampler import Sampler
from .service import Service
from .spans import Spans
from .tokenizer import Tokenizer


def main() -> int:
    """Entry point; returns the exit status."""
    arguments = parse_arguments()
    configure_logging()
    placement.configure_threads(arguments.threads)
    service = build_service(
        arguments.model_dir,
        parameters=Parameters(),
        model_name=arguments.served_model_name,
        api_key=read_api_key(arguments.api_key_file),
    )
    # uvicorn drains on the first SIGTERM or SIGINT and then raises the signal again; drained is not killed
    for kind in (signal.SIGTERM, signal.SIGINT):
        signal.signal(kind, lambda *_: None)
    uvicorn.run(
        create_app(service),
        host=arguments.host,
        port=arguments.port,
        loop="uvloop",
        http="httptools",
        log_config=None,
        access_log=False,
        timeout_keep_alive=75,
    )
    return 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m runtime", description=__doc__)
    parser.add_argument("--model-dir", type=Path, required=True, help="folder that holds bf16/")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--threads", type=int, default=1, help="compute threads")
    parser.add_argument("--served-model-name", help="name in the API; default: the model's own")
    parser.add_argument("--api-key-file", type=Path, help="file with the key that clients must send")
    return parser.parse_args()


def build_service(
    model_dir: Path, *, parameters: Parameters, model_name: str | None = None, api_key: str | None = None
) -> Service:
    """Load the model in `model_dir` and wire the modules together."""
    config = weights.load_config(model_dir)
    model = Model(weights.load_weights(model_dir), config=config, parameters=parameters)
    metrics, spans = Metrics(), Spans()
    engine = Engine(
        sampler=Sampler(model, config=config),
        decoder=PixelDecoder(weights.load_decoder_weights(model_dir), config=config),
        parameters=parameters,
        metrics=metrics,
        spans=spans,
    )
    return Service(
        engine=engine,
        api=Api(config=config, tokenizer=Tokenizer(model_dir), parameters=parameters),
        metrics=metrics,
        spans=spans,
        model_name=model_name or own_model_name(model_dir),
        api_key=api_key,
    )


def own_model_name(model_dir: Path) -> str:
    """The model's id where the folder records one, else the folder's name."""
    path = model_dir / "weights.json"
    recorded = json.loads(path.read_text(encoding="utf-8")).get("model_id") if path.is_file() else None
    return recorded or model_dir.resolve().name


def read_api_key(path: Path | None) -> str | None:
    return None if path is None else path.read_text(encoding="utf-8").strip()


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=True)


def configure_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    threading.excepthook = log_thread_failure


def log_thread_failure(failure: threading.ExceptHookArgs) -> None:
    name = failure.thread.name if failure.thread is not None else "unknown"
    error = failure.exc_value or failure.exc_type()
    logging.getLogger("runtime").critical(
        "thread %s failed", name, exc_info=(failure.exc_type, error, failure.exc_traceback)
    )


if __name__ == "__main__":
    sys.exit(main())
