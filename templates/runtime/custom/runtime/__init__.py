"""A self-contained serving runtime for one model: one HTTP route over one engine thread."""
