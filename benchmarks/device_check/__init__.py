"""The CUDA components on the device that is here: through the real gates, then under load. On a CPU: the same, tiny."""
