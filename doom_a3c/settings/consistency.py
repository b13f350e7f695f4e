"""Checks of settings that depend on each other."""

from __future__ import annotations

from collections.abc import Collection

from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import settings_of

MAX_GAMES = 65_536  # of a run: each takes memory


def check_combinations(config: Config, overrides: Collection[str] = ()) -> Config:
    """Checks settings that depend on each other, and returns the config; each of the `overrides` must have an effect.

    Raises:
        UserError: naming the conflicting settings and the cure.
    """
    if "minibatches" in overrides and config.minibatches > config.envs_per_worker:
        raise UserError(
            f"--minibatches {config.minibatches}: at most one for each game of a worker, and --envs-per-worker is "
            f"{config.envs_per_worker}"
        )
    for one in settings_of(Config).values():
        if one.name in overrides and one.goes_with and not one.goes_with.applies(config):
            remedy = f"it goes with {one.goes_with.words}; add that, or leave {one.flag} out"
            raise UserError(f"{one.flag} has no effect here: {remedy}")
    if config.rollout_length % config.sequence_steps:
        raise UserError(
            f"--sequence-length {config.sequence_length} does not divide --rollout-length {config.rollout_length}; "
            "0 keeps rollouts whole"
        )
    if config.normalize_advantages and config.rollout_length * (config.envs_per_worker // config.minibatch_count) == 1:
        raise UserError(
            "--normalize-advantages needs two steps or more in a minibatch: increase --rollout-length or --envs-per-worker"
        )
    if config.advantage == "n_step" and config.uses_vtrace:
        raise UserError(
            "--advantage n_step assumes on-policy rollouts, but V-trace corrects off-policy ones: "
            "use --advantage gae, or --no-vtrace to learn without correction"
        )
    if not config.vtrace and config.explores:
        raise UserError("--epsilon needs --vtrace, which corrects for random actions; --epsilon 0 turns them off")
    if config.gif_overlay == "saliency" and config.engine == "queue":
        raise UserError(
            "--gif-overlay saliency needs a network in the workers, and --engine queue has none there: use plain"
        )
    if config.engine == "cluster" and ":" in config.device:
        raise UserError(f"--device {config.device}: Ray chooses the GPU of a cluster's server: use --device gpu")
    if (games := config.env_count) > MAX_GAMES:
        raise UserError(
            f"--workers {config.worker_count} --envs-per-worker {config.envs_per_worker}: "
            f"{games:,} games, {MAX_GAMES:,} at most"
        )
    _check_batches(config)
    return config


def _check_batches(config: Config) -> None:
    """Raises UserError for batch sizes that cannot be reached."""
    if not config.learns_from_queue:
        return
    low, high = config.batch_limits
    if low > high:
        steps = config.steps_per_rollout
        raise UserError(
            f"--min-batch {config.min_batch} is {low} rollouts of {steps} steps, more than --max-batch "
            f"{config.max_batch} allows: increase that to {low * steps} or more"
        )
    if low > config.queue_size:
        raise UserError(f"--min-batch {config.min_batch} never fits in the queue: use --queue-size {low} or more")
