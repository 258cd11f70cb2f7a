"""VibeServe synthesises a serving runtime for one declared model, hardware and workload."""

__version__ = "0.1.0"
