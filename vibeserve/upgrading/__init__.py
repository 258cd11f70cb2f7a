"""A certified runtime for a model, a driver or a machine that changed."""
