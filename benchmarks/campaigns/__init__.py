"""The campaigns of benchmarks/faults.py: what is done to runs, and what of them must hold."""
