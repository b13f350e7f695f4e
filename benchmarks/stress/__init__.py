"""Helpers of the commands that break the program: fault campaigns, doors for fuzzing, a cluster to break."""
