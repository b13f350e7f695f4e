"""The command lines: flags in, what happened out."""
