"""What can be told about a candidate without running it, and that nothing changed while it ran."""

from __future__ import annotations

from vibeserve.audit.files import purge_bytecode
from vibeserve.audit.integrity import Snapshot, compare, snapshot
from vibeserve.audit.libraries import check_libraries
from vibeserve.audit.scan import scan_workspace

__all__ = ["Snapshot", "check_libraries", "compare", "purge_bytecode", "scan_workspace", "snapshot"]
