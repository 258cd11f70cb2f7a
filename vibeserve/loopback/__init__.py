"""A model that says what a script tells it, behind a real server on loopback: for trying agents without any model."""

from __future__ import annotations

from vibeserve.loopback.script import FAULTS, Command, Fault, Say, Script, Step, Submit
from vibeserve.loopback.server import Logged, ScriptedServer

__all__ = ["FAULTS", "Command", "Fault", "Logged", "Say", "Script", "ScriptedServer", "Step", "Submit"]
