"""Helpers of the commands that break the program: campaigns of faults, doors for fuzzing, a cluster to hurt."""
