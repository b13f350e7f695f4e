"""Benchmarks and stress tests, each run as `python -m benchmarks.NAME`; README.md lists them."""
