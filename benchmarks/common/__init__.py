"""Helpers shared by several commands: processes, results, trainings, films, speed."""
