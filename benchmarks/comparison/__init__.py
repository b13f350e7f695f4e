"""The comparison with other libraries: who takes part, how a run is measured, and the tables of it."""
