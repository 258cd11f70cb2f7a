"""Probes of a running server: a program that drives it by its API, the names of its checks, and its report."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.modalities.sources import BundleRef


@dataclass(frozen=True, kw_only=True)
class ProbeSuite:
    """`program` runs as `python -m PROGRAM JOB.json` and prints a `ProbeReport`, which must hold every check."""

    program: str
    checks: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ProbeJob:
    """Document: which server, and by which bundle it is asked."""

    base_url: str
    bundle: BundleRef
    seed: int
    timeout_s: float
    """for all checks; those that are left when it is over have failed"""
    is_thorough: bool = False
    """before a certification: more prompts, and longer ones"""
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class ProbeCheck:
    name: str
    ok: bool
    detail: str = ""
    """why it failed; counts and classes only, never prompt text"""
    wall_s: float = 0.0
    not_run: str = ""
    """what was not looked at, where the check, or a part of it, cannot be held; `ok` then says nothing of it"""


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """Document: what the probes found."""

    checks: tuple[ProbeCheck, ...] = ()
    problem: str = ""
    """what a file of the target did wrong: then nothing is said about the server"""
    schema_version: int = 1
