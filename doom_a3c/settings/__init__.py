"""What a run is set to."""
