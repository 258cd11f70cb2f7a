"""Does the search earn its cost? A grid that is measured once, and policies replayed over it."""
