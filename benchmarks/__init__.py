"""Measurements of the product itself. Run from the root of a checkout."""
