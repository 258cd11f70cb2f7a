"""The runtime that round 0 starts from, as a peer: it needs nothing installed. For tests and for the tiny target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.baselines.port import PeerOptions, PrecisionFacts, safetensors_bytes
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from vibeserve.service import Launch


@dataclass(frozen=True, kw_only=True)
class ScaffoldPeer:
    """See `port.Peer`. One request at a time from bf16 weights, computed in f32."""

    name: str = "scaffold"
    title: str = "the scaffold, one request at a time"
    baseline_class: BaselineClass = BaselineClass.naive
    precision: Precision = Precision.same_bytes
    adapter: str = "vllm"
    dtypes: tuple[str, ...] = ()
    install_command: str = "pip install vibeserve"

    def installed_version(self) -> str | None:
        import vibeserve

        return vibeserve.__version__

    def model_name(self, options: PeerOptions) -> str:
        return served_model_name(options)

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        return options.flags

    def launch(self, options: PeerOptions) -> Launch:
        from dataclasses import replace

        from vibeserve.core.paths import data_dir
        from vibeserve.service import candidate_launch
        from vibeserve.skills import assemble

        workspace = options.scratch_dir / "scaffold"
        assemble(data_dir("templates") / "runtime" / "text", components=[], parameters={}, destination=workspace)
        launch = candidate_launch(workspace, model_dir=options.model_dir, name=self.name)
        return replace(launch, argv=(*launch.argv, *options.flags))

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        # it keeps f32 copies of bf16 weights: 32 bits are read for every weight
        return PrecisionFacts(
            weight_bits=32, kv_bits=32, weight_bytes=2 * safetensors_bytes(options.model_dir / "bf16")
        )


def served_model_name(options: PeerOptions) -> str:
    """The name that our runtimes answer to: the model's id as the weights record it, else the folder's name."""
    import json

    record = options.model_dir / "weights.json"
    recorded = json.loads(record.read_text(encoding="utf-8")).get("model_id") if record.is_file() else None
    return recorded or options.model_dir.resolve().name
