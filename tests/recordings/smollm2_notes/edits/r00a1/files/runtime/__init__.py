"""A self-contained serving runtime for one model: an OpenAI-compatible API over one engine thread."""
