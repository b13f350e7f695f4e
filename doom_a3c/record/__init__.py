"""Metrics, films and progress of a run."""
