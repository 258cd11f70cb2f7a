"""The peers by name, and whether a declared one is here."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.baselines.images import IMAGE_PEERS
from vibeserve.baselines.library_servers import LOOKUP_NGRAM, LOOKUP_TOKENS, GeneratePeer, OpenVinoPeer
from vibeserve.baselines.moonshine import MOONSHINE_PEERS
from vibeserve.baselines.own_environment import NGRAM, LlamaCppPeer, VllmPeer
from vibeserve.baselines.port import Peer
from vibeserve.baselines.scaffold import ScaffoldPeer
from vibeserve.baselines.transformers_prefix import TransformersPrefixPeer
from vibeserve.baselines.transformers_serve import TransformersPeer
from vibeserve.errors import MissingBaselineError, SpecError
from vibeserve.spec import SEED_BASELINE, Baseline, BaselineClass

PEERS: dict[str, Peer] = {
    peer.name: peer
    for peer in (
        TransformersPeer(
            name="transformers",
            title="transformers serve, one request at a time",
            baseline_class=BaselineClass.naive,
            continuous_batching=False,
        ),
        TransformersPeer(
            name="transformers_cb",
            title="transformers serve --continuous-batching",
            baseline_class=BaselineClass.competent,
            continuous_batching=True,
        ),
        TransformersPrefixPeer(),
        VllmPeer(),
        VllmPeer(name="vllm_ngram", title="vLLM (CPU build, torch.compile, n-gram speculation)", speculation=NGRAM),
        LlamaCppPeer(),
        OpenVinoPeer(),
        GeneratePeer(
            name="transformers_prompt_lookup",
            title="transformers generate with prompt lookup, one request at a time",
            baseline_class=BaselineClass.competent,
            flags_of_its_own=("--lookup-tokens", str(LOOKUP_TOKENS), "--lookup-ngram", str(LOOKUP_NGRAM)),
        ),
        GeneratePeer(
            name="transformers_llguidance",
            title="transformers generate under llguidance masks, one request at a time",
            baseline_class=BaselineClass.naive,
            needs=("llguidance",),
        ),
        ScaffoldPeer(),
        *MOONSHINE_PEERS,
        *IMAGE_PEERS,
    )
}

NO_LAUNCHER: dict[str, str] = {
    "sglang": "SGLang on a GPU",
    "mlx_lm": "mlx_lm.server on Apple silicon",
    "vllm_draft": "vLLM with a draft model",
    "vllm_moonshine": "vLLM with the Moonshine plug-in",
    "moonshine_voice": "Moonshine's own library",
    "faster_whisper": "faster-whisper with Whisper tiny.en",
}
"""peers that may be declared and have no launcher in this version: name -> what it is"""

NO_LAUNCHER_REASON = "has no launcher in this version"


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a declared baseline can be measured. `reason` is the text of a `skipped` row, empty when it can."""

    name: str
    version: str | None
    reason: str = ""


def get_peer(name: str) -> Peer:
    """The peer of that name; `SpecError` lists those with a launcher."""
    if name in NO_LAUNCHER:
        raise SpecError(
            f"baseline: '{name}' has no launcher in this version",
            problems=[f"those with one: {', '.join(sorted(PEERS))}"],
        )
    if name not in PEERS:
        raise SpecError(f"baseline: unknown peer '{name}'", problems=[f"valid: {', '.join(sorted(PEERS))}"])
    return PEERS[name]


def installed_version(name: str) -> str | None:
    """Exact version of the peer on this machine, or None."""
    return get_peer(name).installed_version()


def check_available(name: str, declared: Baseline) -> Availability:
    """Version of a declared baseline, or why it is skipped.

    `MissingBaselineError` (exit 5, with the install command) when a required one is absent, of another version, or has
    no launcher.
    """
    if name in NO_LAUNCHER and declared.required:
        optional = f"declare it optional (baseline.{name}.required=false)"
        others = f"{optional}, or require one of: {', '.join(sorted(PEERS))}"
        raise MissingBaselineError(name, install=others, why=NO_LAUNCHER_REASON)
    found = availability(name, declared)
    if found.version is None and declared.required:
        raise MissingBaselineError(name, install=get_peer(name).install_command)
    return found


def availability(name: str, declared: Baseline) -> Availability:
    """Like `check_available`, whether it is required or not: raises nothing for a declared peer."""
    if name in NO_LAUNCHER:
        return Availability(name=name, version=None, reason=NO_LAUNCHER_REASON)
    if name == SEED_BASELINE:
        return Availability(name=name, version=declared.version)  # round 0 has it, or there is no run
    peer = get_peer(name)
    version = peer.installed_version()
    if version is not None and declared.version in ("", version):
        return Availability(name=name, version=version)
    found = "not installed" if version is None else f"version {version} is installed, {declared.version} is declared"
    return Availability(name=name, version=None, reason=f"{found}; {peer.install_command}")
