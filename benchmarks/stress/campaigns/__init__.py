"""The campaigns of benchmarks.faults: what they do to runs, and which promises they check."""
