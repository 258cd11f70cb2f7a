"""Streaming speech as one gets it from stock parts: transformers' Moonshine Streaming behind the scaffold's protocol.

Both decode every transcript anew with transformers' key-value cache; audio that came while the model was busy is taken
together, as the scaffold does. `moonshine_full` encodes all the audio for every chunk, as the class is called in its
documentation. `moonshine_window` encodes the window that the chunk's frames can hear, which gives the same frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.baselines.port import PeerOptions, PrecisionFacts, dtype_facts
from vibeserve.baselines.scaffold import served_model_name
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from pathlib import Path

    from vibeserve.service import Launch

OVERLAY = ("weights", "encoder", "decoder")
"""modules of the scaffold that `templates/baselines/moonshine` replaces"""


@dataclass(frozen=True, kw_only=True)
class MoonshinePeer:
    """See `port.Peer`."""

    name: str
    title: str
    baseline_class: BaselineClass
    is_windowed: bool
    precision: Precision = Precision.same_bytes
    dialect: str = "vllm"
    dtypes: tuple[str, ...] = ("f32", "bf16")
    install_command: str = "pip install 'transformers[serving]'"

    def installed_version(self) -> str | None:
        from importlib import metadata

        try:
            return metadata.version("transformers")
        except metadata.PackageNotFoundError:
            return None

    def model_name(self, options: PeerOptions) -> str:
        return served_model_name(options)

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        return options.flags

    def launch(self, options: PeerOptions) -> Launch:
        from dataclasses import replace

        from vibeserve.core.paths import data_dir
        from vibeserve.service import candidate_launch
        from vibeserve.skills import assemble

        workspace = options.scratch_dir / f"{self.name}_{options.dtype}"
        assemble(options.scaffold or data_dir("templates") / "runtime" / "speech", [], {}, workspace)
        self._overlay(workspace / "runtime", dtype=options.dtype)
        launch = candidate_launch(
            workspace, model_dir=options.model_dir, name=self.name,
            allow_engines=(*options.allow_engines, "transformers"),
        )  # fmt: skip
        return replace(launch, argv=(*launch.argv, *options.flags))

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return dtype_facts(options)

    def _overlay(self, runtime: Path, *, dtype: str) -> None:
        from vibeserve.core.paths import data_dir

        source = data_dir("templates") / "baselines" / "moonshine"
        (runtime / "weights.py").rename(runtime / "scaffold_weights.py")
        for name in OVERLAY:
            (runtime / f"{name}.py").write_bytes((source / f"{name}.py").read_bytes())
        text = f'FOLDER = "{dtype}"\nIS_WINDOWED = {self.is_windowed}\n'
        (runtime / "flavour.py").write_text(f'"""Which of the baselines this is."""\n\n{text}', encoding="utf-8")


MOONSHINE_PEERS = (
    MoonshinePeer(
        name="moonshine_full", title="transformers Moonshine Streaming, everything encoded again for every chunk",
        baseline_class=BaselineClass.naive, is_windowed=False,
    ),
    MoonshinePeer(
        name="moonshine_window",
        title="transformers Moonshine Streaming, the sliding window encoded again for every chunk",
        baseline_class=BaselineClass.competent, is_windowed=True,
    ),
)  # fmt: skip
