"""The two ends of a host that is another machine: the program there, and the bench of the controller that uses it."""
