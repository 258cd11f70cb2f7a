"""What the framework itself costs a round, by the length of the history: `python -m benchmarks.overhead`."""
