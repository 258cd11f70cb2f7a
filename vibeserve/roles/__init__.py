"""The four roles of the loops and the bench that they work at."""
