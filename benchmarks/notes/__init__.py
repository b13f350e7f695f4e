"""One-off calculations, with results quoted in docs/notes."""
