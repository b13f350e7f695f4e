"""How many of what a run has, by its settings."""

from __future__ import annotations

import os

from doom_a3c.settings.config import Config, learns_apart


def batch_limits(config: Config) -> tuple[int, int]:
    """Returns how many rollouts an update takes at least and at most, one or more, where rollouts wait in a queue."""
    steps = config.games * config.rollout_length
    return -(-config.min_batch // steps), max(1, config.max_batch // steps)


def rows_kept(config: Config) -> int:
    """Returns how many of the newest observations games keep.

    Those of a rollout, where it is learned from before its worker plays the next one; elsewhere rollouts are copies.
    """
    return 1 if learns_apart(config) or config.accumulate > 1 else config.rollout_length + 1


def cpu_count() -> int:
    """Returns the number of CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worker_count(config: Config) -> int:
    """Returns the number of worker threads, with 0 standing for one per CPU."""
    return config.workers or cpu_count()


def games_of_run(config: Config) -> int:
    """Returns how many games all workers of this process play."""
    return worker_count(config) * config.games


def steps_under_way(config: Config) -> int:
    """Returns how many steps, at most, have been played and are not counted yet."""
    rollouts = worker_count(config) + (config.queue_size if learns_apart(config) else 0)
    return rollouts * config.games * config.rollout_length
