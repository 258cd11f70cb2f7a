"""The metering proxy: every model request of a command-line agent passes it.

It holds the key, so that the agent's sandbox never sees it; asks the ledger before a request is sent and counts what
was answered; records; and streams answers through unbuffered. One proxy serves one call of an agent:

    upstreams = [upstream_of("responses", base_url=agent.base_url, api_key_env=agent.api_key_env)]
    with Proxy(role=..., key=..., backend="codex", model=agent.model, ledger=ledger, upstreams=upstreams,
               record_dir=request.record_dir, max_turns=request.limits.max_turns) as proxy:
        port = host.lease_port()
        argv = forwarded_argv(client_argv, socket=proxy.socket, port=port)
        host.run(argv, wall=admitted(wall, socket=proxy.socket, port=port), ...)
        # the client's base URL: http://127.0.0.1:{port}/v1 (Anthropic: without /v1); its key: proxy.client_key
    proxy.stop_reason     # "", "cap" (proxy.cap_error says which) or "max_turns"
    proxy.last_failure    # how the API failed the last request, or None: to be raised if the client failed
    proxy.usage, proxy.usd
"""

from __future__ import annotations

from vibeserve.agents.proxy.dialects import CHAT, DIALECTS, GEMINI, MESSAGES, RESPONSES
from vibeserve.agents.proxy.forwarding import admitted, forwarded_argv
from vibeserve.agents.proxy.record import Exchange, read_traffic
from vibeserve.agents.proxy.replay import ReplayUpstream
from vibeserve.agents.proxy.server import Proxy
from vibeserve.agents.proxy.upstream import Upstream, upstream_of

__all__ = [
    "CHAT",
    "DIALECTS",
    "GEMINI",
    "MESSAGES",
    "RESPONSES",
    "Exchange",
    "Proxy",
    "ReplayUpstream",
    "Upstream",
    "admitted",
    "forwarded_argv",
    "read_traffic",
    "upstream_of",
]
