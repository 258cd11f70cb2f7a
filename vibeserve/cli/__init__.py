"""The command line: a thin front, one module per verb, one error boundary."""
