"""Measurements and stress tests of the project, each run as `python -m benchmarks.NAME`; README.md lists them."""
