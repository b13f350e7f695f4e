"""Checks of settings that depend on each other."""

from __future__ import annotations

from collections.abc import Collection

from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import settings_of

MAX_GAMES = 65_536  # games of a run: each takes memory


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
            "with 0 rollouts stay whole"
        )
    if config.normalize_advantages and config.rollout_length * (config.envs_per_worker // config.minibatch_count) == 1:
        raise UserError(
            "--normalize-advantages leaves nothing of the one step in a minibatch: "
            "make --rollout-length or --envs-per-worker larger"
        )
    if config.advantage == "n_step" and config.uses_vtrace:
        raise UserError(
            "--advantage n_step takes rollouts as the newest policy's own, V-trace corrects them: "
            "use --advantage gae, or --no-vtrace to learn uncorrected"
        )
    if not config.vtrace and config.explores:
        raise UserError(
            "--epsilon needs --vtrace: without it random actions would be taught as the policy's own; --epsilon 0 has none"
        )
    if config.gif_overlay == "saliency" and config.engine == "queue":
        raise UserError("--gif-overlay saliency has no network beside the games of --engine queue: use plain there")
    if config.engine == "cluster" and ":" in config.device:
        raise UserError(f"--device {config.device}: a cluster says which GPU its server gets; --device gpu asks for one")
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
        steps = config.envs_per_worker * config.rollout_length
        raise UserError(
            f"--min-batch {config.min_batch} is {low} rollouts of {steps} steps, more than --max-batch "
            f"{config.max_batch} allows: make that {low * steps} or more"
        )
    if low > config.queue_size:
        raise UserError(f"--min-batch {config.min_batch} never fits in the queue: --queue-size {low} or more holds it")
