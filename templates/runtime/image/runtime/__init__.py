"""A self-contained serving runtime for one model that draws: one image at a time."""
