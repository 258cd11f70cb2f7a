"""The runtime that round 0 starts from, as a peer: it needs nothing installed. For tests and for the tiny target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.baselines.port import PeerOptions, PrecisionFacts, safetensors_bytes
from vibeserve.spec import BaselineClass, Precision
from vibeserve.weights import files_of

if TYPE_CHECKING:
    from vibeserve.service import Launch


@dataclass(frozen=True, kw_only=True)
class ScaffoldPeer:
    """See `port.Peer`. One request at a time, computed in f32."""

    name: str = "scaffold"
    title: str = "the scaffold, one request at a time"
    baseline_class: BaselineClass = BaselineClass.naive
    precision: Precision = Precision.same_bytes
    dialect: str = "vllm"
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
        from vibeserve.skills import assemble, load_scaffold, pinned_values

        workspace = options.scratch_dir / "scaffold"
        scaffold = options.scaffold or data_dir("templates") / "runtime" / "text"
        # it is one process, over how many ranks the target may be spread
        parameters = pinned_values(load_scaffold(scaffold).parameters, options.scaffold_parameters)
        assemble(scaffold, [], parameters, workspace)
        launch = candidate_launch(
            workspace, model_dir=options.model_dir, name=self.name, allow_engines=options.allow_engines
        )
        return replace(launch, argv=(*launch.argv, *options.flags))

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        # it computes in f32: 32 bits are read for every weight
        folder = options.model_dir / "bf16"
        if folder.is_dir():
            return PrecisionFacts(weight_bits=32, kv_bits=32, weight_bytes=2 * safetensors_bytes(folder))
        return PrecisionFacts(weight_bits=32, kv_bits=32, weight_bytes=safetensors_bytes(files_of(options.model_dir)))


def served_model_name(options: PeerOptions) -> str:
    """The name that our runtimes answer to: the model's id as the weights record it, else the folder's name."""
    import json

    record = options.model_dir / "weights.json"
    recorded = json.loads(record.read_text(encoding="utf-8")).get("model_id") if record.is_file() else None
    return recorded or options.model_dir.resolve().name
