"""Calculations made once, whose results docs/notes quotes."""
