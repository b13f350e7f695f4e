"""Progress of a run, its metrics and the loggers that write them."""
