"""One role played by a scripted model, in a workspace of two files, behind a wall of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_model import CHAT, KEY, RESPONSES, ScriptedModel

from vibeserve import spec
from vibeserve.agents.ledger import Cap, Ledger
from vibeserve.agents.openai_loop import OpenAIBackend, SkillShelf, ToolSandbox
from vibeserve.agents.prices import ModelPrice, PriceTable
from vibeserve.agents.requests import AgentRequest, CallLimits
from vibeserve.hosts import LocalHost
from vibeserve.sandbox import resolve_tier
from vibeserve.spec import Tier

SCHEMA = {
    "type": "object", "properties": {"status": {"enum": ["done", "gave_up"]}, "summary": {"type": "string"}},
    "required": ["status"], "additionalProperties": False,
}  # fmt: skip


@pytest.fixture(params=["responses", "chat"])
def api(request: pytest.FixtureRequest) -> str:
    """Both APIs."""
    name: str = request.param
    return name


@pytest.fixture
def paths(api: str) -> tuple[str, ...]:
    """What a server of that API serves."""
    return (RESPONSES,) if api == "responses" else (CHAT,)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "runtime").mkdir(parents=True)
    (folder / "runtime" / "model.py").write_text("def forward(x):\n    return x * 2\n")
    (folder / "README.md").write_text("a runtime\n")
    return folder


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    return KEY


@pytest.fixture
def make_ledger() -> Callable[..., Ledger]:
    """1 USD per million input tokens, 10 per million output tokens; `tokens` caps the run."""

    def make(*, tokens: int = 0) -> Ledger:
        price = ModelPrice(input_usd_per_m=1.0, cached_input_usd_per_m=1.0, output_usd_per_m=10.0)
        return Ledger(run_cap=Cap(tokens=tokens), role_caps={}, prices=PriceTable(date="", models={"scripted": price}))

    return make


@pytest.fixture
def ledger(make_ledger: Callable[..., Ledger]) -> Ledger:
    """Without caps."""
    return make_ledger()


@pytest.fixture
def make_sandbox() -> Callable[..., ToolSandbox]:
    def make(**changes: Any) -> ToolSandbox:
        tier = changes.pop("tier", None) or resolve_tier(Tier.auto, allow_none=False)
        return ToolSandbox(**{"host": LocalHost(), "tier": tier, **changes})

    return make


@pytest.fixture
def make_backend(ledger: Ledger, make_sandbox: Callable[..., ToolSandbox]) -> Callable[..., OpenAIBackend]:
    """A back end around a scripted model; keywords are fields of `agents`, or parts to replace."""

    def make(model: ScriptedModel, /, **changes: Any) -> OpenAIBackend:
        own = {"ledger": ledger, "skills": SkillShelf(), **changes}
        parts = {name: own.pop(name) for name in ("ledger", "skills")}
        parts["sandbox"] = own.pop("sandbox", None) or make_sandbox()
        parts["make_client"] = own.pop("make_client", model.make_client)
        declared = spec.Agents(**{"backend": "openai", "model": "scripted", **own})
        return OpenAIBackend(spec.resolve_role(declared, "implementer"), declared, **parts)

    return make


@pytest.fixture
def make_request(workspace: Path, tmp_path: Path) -> Callable[..., AgentRequest]:
    def make(**changes: Any) -> AgentRequest:
        own = {"timeout_s": 60.0, "max_turns": 20, **changes}
        limits = CallLimits(timeout_s=own.pop("timeout_s"), max_turns=own.pop("max_turns"))
        fixed = {
            "role": "implementer", "key": "r01a1-implementer", "prompt": "Make it faster.", "workspace": workspace,
            "is_writable": True, "output_schema": SCHEMA, "record_dir": tmp_path / "records",
        }  # fmt: skip
        return AgentRequest(**{**fixed, "limits": limits, **own})

    return make
