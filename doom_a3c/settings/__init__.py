"""The settings of a run, and the files they come from."""
