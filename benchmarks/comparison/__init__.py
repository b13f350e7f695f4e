"""The comparison with other libraries: the systems, how a run is measured, and the tables."""
