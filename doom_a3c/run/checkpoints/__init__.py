"""Checkpoints of a run: the file, the folders and their locks, the record, and pretrained models."""
