"""Image generation as one gets it from stock parts: the reference's network behind the scaffold's protocol.

`reference` computes as upstream does, in f32. By flow: prompt and image through all layers in every step, both branches
of guidance in one batch that is padded to the longer one. Token by token: both branches in one batch, keys and values
in a cache that grows by copies. `reference_tuned` is what a good engineer makes of it in a day: the text's keys and
values kept over the steps, or a cache of fixed size; bf16 weights or f32 (whichever a calibration finds faster), blocks
compiled by torch.compile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.baselines.port import TORCH_DTYPES, PeerOptions, PrecisionFacts, dtype_facts
from vibeserve.baselines.scaffold import served_model_name
from vibeserve.spec import BaselineClass, Precision

if TYPE_CHECKING:
    from pathlib import Path

    from vibeserve.service import Launch


READY_TIMEOUT_S = 600.0
"""a first image compiles for half a minute, on a busy machine for minutes; later starts load the compiled code"""


@dataclass(frozen=True, kw_only=True)
class ImagePeer:
    """See `port.Peer`."""

    name: str
    title: str
    baseline_class: BaselineClass
    overlay: tuple[tuple[str, str], ...]
    """(module, file of `templates/baselines`, in which `{architecture}` stands for the model's); a module of the
    scaffold stays beside it as `scaffold_<name>`"""
    is_compiled: bool
    dtypes: tuple[str, ...]
    precision: Precision = Precision.same_bytes
    dialect: str = "vllm"
    install_command: str = "pip install vibeserve"

    def installed_version(self) -> str | None:
        from importlib import metadata

        # its arithmetic is torch's
        return metadata.version("torch").split("+")[0]

    def model_name(self, options: PeerOptions) -> str:
        return served_model_name(options)

    def flags(self, options: PeerOptions) -> tuple[str, ...]:
        return options.flags

    def launch(self, options: PeerOptions) -> Launch:
        from dataclasses import replace

        from vibeserve.core.paths import cache_dir, data_dir
        from vibeserve.service import candidate_launch
        from vibeserve.skills import assemble, load_scaffold

        workspace = options.scratch_dir / f"{self.name}_{options.dtype}"
        scaffold = options.scaffold or data_dir("templates") / "runtime" / "image"
        assemble(scaffold, [], options.scaffold_parameters, workspace)
        (architecture,) = load_scaffold(scaffold).architectures
        self._overlay(workspace / "runtime", architecture=architecture, dtype=options.dtype)
        launch = candidate_launch(
            workspace, model_dir=options.model_dir, name=self.name, allow_engines=options.allow_engines
        )
        argv = (*launch.argv, *options.flags)
        if not self.is_compiled:
            return replace(launch, argv=argv)
        compiled = cache_dir() / "peers" / f"{self.name}-torch-{self.installed_version()}-compiled"
        compiled.mkdir(parents=True, exist_ok=True)
        env = {**launch.env, **_compiler_environment(compiled)}
        return replace(launch, argv=argv, env=env, writable=(compiled,), ready_timeout_s=READY_TIMEOUT_S)

    def precision_facts(self, options: PeerOptions) -> PrecisionFacts:
        return dtype_facts(options)

    def _overlay(self, runtime: Path, *, architecture: str, dtype: str) -> None:
        from vibeserve.core.paths import data_dir

        source = data_dir("templates") / "baselines"
        for module, file in self.overlay:
            place = runtime / f"{module}.py"
            if place.is_file():
                place.rename(runtime / f"scaffold_{module}.py")
            place.write_bytes((source / file.format(architecture=architecture)).read_bytes())
        text = f'DTYPE = "{TORCH_DTYPES[dtype]}"\nIS_COMPILED = {self.is_compiled}\n'
        (runtime / "flavour.py").write_text(f'"""Which of the baselines this is."""\n\n{text}', encoding="utf-8")


def _compiler_environment(compiled: Path) -> dict[str, str]:
    """Of Inductor behind the wall: a folder that stays, no workers of its own, and a user's name, for there are no
    accounts to look it up in."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(compiled), "TORCHINDUCTOR_COMPILE_THREADS": "1", "LOGNAME": "server"}


IMAGE_PEERS = (
    ImagePeer(
        name="reference", title="the reference as upstream runs it, f32",
        baseline_class=BaselineClass.naive, overlay=(("model", "{architecture}/model_as_upstream.py"),),
        is_compiled=False, dtypes=("f32",),
    ),
    ImagePeer(
        name="reference_tuned",
        title="the reference with what is known kept, guidance in one batch, blocks compiled",
        baseline_class=BaselineClass.competent,
        overlay=(
            ("model", "{architecture}/model_tuned.py"), ("compiled_blocks", "images/compiled_blocks.py"),
            ("linear", "images/linear_tuned.py"),
        ),
        is_compiled=True, dtypes=("f32", "bf16"),
    ),
)  # fmt: skip
