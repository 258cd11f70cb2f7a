"""Where a server's time goes and what of it ran, as the framework sees it from outside (`docs/profiles.md`)."""

from vibeserve.profiles.activated import MIN_LOOKS, is_telling, judged_activation
from vibeserve.profiles.activation import changed_files, check_activation
from vibeserve.profiles.building import UNITS, Evidence, build_profile, spans_profile
from vibeserve.profiles.documents import Bottleneck, Frame, NativeSymbol, Observed, Profile, Structure, ThreadFact
from vibeserve.profiles.floors import UnitFloors, floors_of, unit_floors
from vibeserve.profiles.linux_perf import LinuxPerf
from vibeserve.profiles.observer import MAX_EFFECT, is_within, observe, order_of_slices, under_rule
from vibeserve.profiles.py_spy import PySpy
from vibeserve.profiles.shares import planning_shares
from vibeserve.profiles.text import COLUMNS, ReportRow, profile_lines, report_rows
from vibeserve.profiles.threads import mapped_libraries, read_threads
from vibeserve.profiles.tools import Profiler, Recording, Target

__all__ = [
    "COLUMNS",
    "MAX_EFFECT",
    "MIN_LOOKS",
    "UNITS",
    "Bottleneck",
    "Evidence",
    "Frame",
    "LinuxPerf",
    "NativeSymbol",
    "Observed",
    "Profile",
    "Profiler",
    "PySpy",
    "Recording",
    "ReportRow",
    "Structure",
    "Target",
    "ThreadFact",
    "UnitFloors",
    "build_profile",
    "changed_files",
    "check_activation",
    "floors_of",
    "is_telling",
    "is_within",
    "judged_activation",
    "mapped_libraries",
    "observe",
    "order_of_slices",
    "planning_shares",
    "profile_lines",
    "read_threads",
    "report_rows",
    "spans_profile",
    "under_rule",
    "unit_floors",
]
