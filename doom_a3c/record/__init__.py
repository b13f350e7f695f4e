"""What is kept of a run for people."""
