"""The case studies side by side with their peers, out of certified artifacts."""
