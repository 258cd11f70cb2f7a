"""Studies that are no part of the product."""
