"""A self-contained serving runtime for one model that draws: images by flow matching, one at a time."""
