"""The campaigns of benchmarks.faults: how they break runs, and the promises they check."""
