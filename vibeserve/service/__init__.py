"""Servers, candidate or baseline: what starts them, their readiness, their end. One launcher for all."""

from pathlib import Path

from vibeserve.core.engines import ENGINES
from vibeserve.service.build import build_workspace
from vibeserve.service.first_request import FirstRequest, first_request
from vibeserve.service.launch import Launch, candidate_launch
from vibeserve.service.manifest import Ready, ServiceFile, read_service, service_refusals
from vibeserve.service.server import Server, start_server

__all__ = [
    "ENGINES",
    "FETCH_PROGRAM",
    "FirstRequest",
    "Launch",
    "Ready",
    "Server",
    "ServiceFile",
    "build_workspace",
    "candidate_launch",
    "first_request",
    "read_service",
    "service_refusals",
    "start_server",
]

FETCH_PROGRAM = Path(__file__).with_name("fetch.py")
"""GETs one URL; run by path in a server's network"""
