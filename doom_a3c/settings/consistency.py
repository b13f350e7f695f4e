"""Which settings fit each other."""

from __future__ import annotations

from collections.abc import Collection

from doom_a3c.settings.config import (
    Config,
    explores,
    learns_apart,
    minibatch_count,
    sequence_length,
    uses_vtrace,
)
from doom_a3c.settings.derived import batch_limits, games_of_run, worker_count
from doom_a3c.settings.fields import UserError, settings_of

MAX_GAMES = 65_536  # of a run, each of which takes memory


def consistent(config: Config, overrides: Collection[str] = ()) -> Config:
    """Returns the settings after checking those that depend on each other; `overrides` are those that must have an effect.

    Raises:
        UserError: naming the settings that exclude each other, or need another, and what would be right.
    """
    if "minibatches" in overrides and config.minibatches > config.games:
        raise UserError(
            f"--minibatches {config.minibatches}: no more than there are --games, {config.games}, can be dealt out"
        )
    for one in settings_of(Config).values():
        if one.name in overrides and one.goes_with and not one.goes_with.applies(config):
            remedy = f"it goes with {one.goes_with.words}; add that, or leave {one.flag} out"
            raise UserError(f"{one.flag} has no effect here: {remedy}")
    if config.rollout_length % sequence_length(config):
        raise UserError(
            f"--sequence-length {config.sequence_length} does not divide --rollout-length {config.rollout_length}; "
            "with 0 rollouts stay whole"
        )
    if config.normalize_advantages and config.rollout_length * (config.games // minibatch_count(config)) == 1:
        raise UserError(
            "--normalize-advantages leaves nothing of the one step in a minibatch: make --rollout-length or --games larger"
        )
    if config.advantage == "n_step" and uses_vtrace(config):
        raise UserError(
            "--advantage n_step takes rollouts as the newest policy's own, V-trace corrects them: "
            "use --advantage gae, or --no-vtrace to learn uncorrected"
        )
    if not config.vtrace and explores(config):
        raise UserError(
            "--epsilon needs --vtrace: without it random actions would be taught as the policy's own; --epsilon 0 has none"
        )
    if config.gif_overlay == "saliency" and config.engine == "queue":
        raise UserError("--gif-overlay saliency has no network beside the games of --engine queue: use plain there")
    if config.engine == "cluster" and ":" in config.device:
        raise UserError(f"--device {config.device}: a cluster says which GPU its server gets; --device gpu asks for one")
    if (games := games_of_run(config)) > MAX_GAMES:
        raise UserError(f"--workers {worker_count(config)} --games {config.games}: {games:,} games, {MAX_GAMES:,} at most")
    _check_batches(config)
    return config


def _check_batches(config: Config) -> None:
    """Raises UserError where batches cannot be as large as the settings want them."""
    if not learns_apart(config):
        return
    low, high = batch_limits(config)
    if low > high:
        steps = config.games * config.rollout_length
        raise UserError(
            f"--min-batch {config.min_batch} is {low} rollouts of {steps} steps, more than --max-batch "
            f"{config.max_batch} allows: make that {low * steps} or more"
        )
    if low > config.queue_size:
        raise UserError(f"--min-batch {config.min_batch} never fits in the queue: --queue-size {low} or more holds it")
