"""`invoke crash-loop`: runs that are killed, and what must be true of them afterwards."""
