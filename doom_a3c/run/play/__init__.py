"""Trained agents at play: episodes, films, pages, comparisons, exports, and the doctor."""
