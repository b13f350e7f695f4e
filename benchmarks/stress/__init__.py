"""Helpers of the commands that break the program: fault campaigns, targets for fuzzing, a cluster to break."""
