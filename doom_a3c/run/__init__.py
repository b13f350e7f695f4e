"""One run, put together."""
