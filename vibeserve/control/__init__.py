"""Steering: what people ask of a run while it searches, as typed requests that its owner carries out at safe points."""

from __future__ import annotations

from vibeserve.control.effects import RequestRefusedError
from vibeserve.control.offer import Offer, offer_in
from vibeserve.control.owner import Steering
from vibeserve.control.requests import CONTROL, Request, submit, waiting
from vibeserve.control.shapes import SHAPES, shape_problem, told
from vibeserve.control.site import Phase, Site
from vibeserve.control.state import (
    CONTROL_EVENT,
    Handled,
    SteeringState,
    handled_of,
    interventions_of,
    steered_spec,
    steering_of,
)

__all__ = [
    "CONTROL",
    "CONTROL_EVENT",
    "SHAPES",
    "Handled",
    "Offer",
    "Phase",
    "Request",
    "RequestRefusedError",
    "Site",
    "Steering",
    "SteeringState",
    "handled_of",
    "interventions_of",
    "offer_in",
    "shape_problem",
    "steered_spec",
    "steering_of",
    "submit",
    "told",
    "waiting",
]
