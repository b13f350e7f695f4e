"""Helpers that several commands share: processes, results, trainings, films, speed."""
