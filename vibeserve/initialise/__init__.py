"""First targets: a file from a few answers, a folder from a model's own files, and the proof that a folder works."""
