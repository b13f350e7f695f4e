"""The command line: parses flags and prints results."""
