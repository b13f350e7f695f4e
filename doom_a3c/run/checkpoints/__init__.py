"""Checkpoints of a run: the file, the folder and its lock, the record, and pretrained models."""
