"""The frozen nouns of the system and how they are written to disk. Imports nothing above it."""
