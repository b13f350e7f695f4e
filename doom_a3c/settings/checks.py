"""Checks of scenarios from any source, of their networks, and of settings that depend on each other."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping

from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context, require
from doom_a3c.settings.fields import settings_of
from doom_a3c.settings.games import RULE, AtariSpec, DoomSpec, Observation
from doom_a3c.settings.match import check_match, parse_match
from doom_a3c.settings.network import Network, compute_maps, count_separate_numbers
from doom_a3c.settings.setting import MAX_TEXT
from doom_a3c.settings.shaping import parse_weights

NAME = re.compile(r"[^/\\.~-][^/\\]{0,199}")
MAX_SCALE = 1e6  # of a game variable: sums must stay finite


def parse_name(value: object) -> str:
    """Returns `value` if it is a valid name of a scenario or a run; raises ValueError if not."""
    if not is_name(value):
        raise ValueError(f"{str(value)[:40]!r} is not a name")
    return str(value)


def is_name(value: object) -> bool:
    """Returns whether a value may name a scenario or a run, and so a folder."""
    return isinstance(value, str) and bool(NAME.fullmatch(value)) and value.isprintable() and len(value.encode()) <= 200


def check_values(value: object, depth: int = 0) -> None:
    """Raises UserError for a value that no scenario has: untrusted ones would reach file names and the terminal."""
    if isinstance(value, Mapping):
        require(depth < 8 and len(value) < 1000, "a table or list is too large")
        for key, part in value.items():
            check_values(key, depth + 1)
            with error_context(str(key)):
                check_values(part, depth + 1)
    elif isinstance(value, list | tuple):
        require(depth < 8 and len(value) < 1000, "a table or list is too large")
        for part in value:
            check_values(part, depth + 1)
    elif isinstance(value, str):
        require(
            value.isprintable() and len(value) <= MAX_TEXT,
            f"{value[:40]!r} must be one line of {MAX_TEXT} characters at most",
        )
    elif isinstance(value, float):
        require(math.isfinite(value), f"{value} is not a finite number")
    elif isinstance(value, int):
        require(abs(value) < 2**31, "whole numbers must be within 2,147,483,647 of 0")
    else:  # such as a date of TOML
        require(value is None, f"{value} is neither a number nor text")


def check_doom(game: DoomSpec, observation: Observation) -> None:
    """Raises UserError for mistakes in a Doom game that can be found without ViZDoom; `check_observation` comes first."""
    require(
        bool(game.wad or game.available_buttons), "[game] needs a config or a wad, or the id of a Gymnasium environment"
    )
    require(all(isinstance(name, str) for name in game.available_buttons), "[game] available_buttons takes names")
    require(
        game.settings.get("episode_timeout") != 0,
        "episode_timeout = 0 disables the time-out: set the maximum frames of an episode, such as 2100, or leave it out if "
        "every episode ends by itself",
    )
    rules = all(RULE.fullmatch(str(name)) and type(number) is int for name, number in game.rules.items())
    require(rules, "[game.rules] takes whole numbers for sv_ variables of the engine, such as sv_noautoaim = 1")
    if match := parse_match(game.match):
        check_match(match, game.available_buttons)
    require(all(isinstance(name, str) for name in game.variables), "[game] variables takes names, such as ['HEALTH']")
    twice = next((name for name in game.variables if game.variables.count(name) > 1), "")
    require(not twice, f"[game] variables has {twice} twice, and the engine shows it once")
    parse_weights(game.shaping)
    numbers = all(type(scale) in (int, float) and abs(scale) <= MAX_SCALE for scale in game.variable_scales)
    require(
        numbers and len(game.variable_scales) in (0, len(game.variables)),
        f"[game] variable_scales needs one number a variable, {MAX_SCALE:,.0f} at most",
    )
    if not (sides := re.fullmatch(r"([0-9]{1,5})x([0-9]{1,5})", observation.resolution)):
        raise UserError(f"[observation] resolution must look like '160x120', not {observation.resolution!r}")
    width, height = map(int, sides.groups())
    require(observation.leaves_something(height, width), "[observation] crop leaves nothing")


def check_atari(game: AtariSpec) -> None:
    """Raises UserError for an Atari game with a number out of range."""
    require(0 <= game.sticky_actions <= 1, "[game] sticky_actions is a probability, 0 to 1")
    require(0 <= game.noop_max <= 10_000, "[game] noop_max must be 0 to 10,000")
    require(game.max_frames >= 1, "[game] max_frames must be 1 or more")


def check_observation(observation: Observation) -> None:
    """Raises UserError for a crop, size or stack out of range."""
    crop = observation.crop
    require(len(crop) == 4, "[observation] crop must be [top, bottom, left, right]")
    require(all(type(side) is int and side >= 0 for side in crop), "[observation] crop takes whole numbers")
    size = observation.size
    require(all(type(side) is int for side in size), "[observation] size takes whole numbers")
    fits = len(size) == 2 and min(size) > 0 and max(size) <= 1024
    require(fits, f"[observation] size must be [height, width], each 1 to 1024, not {list(size)}")
    require(1 <= observation.stack <= 16, "[observation] stack must be 1 to 16")


MAX_PARAMETERS = 50_000_000  # 600 MB with the optimizer's statistics
MAX_OUTPUTS = 4_000_000  # outputs of all convolutions for one picture: 16 MB
ACTIVATIONS = ("elu", "relu", "relu6", "tanh")


def check_network(network: Network, pixels: tuple[int, ...]) -> None:
    """Raises UserError for layers that do not fit each other, or pictures of this height, width and channels."""
    require(1e-6 <= network.pixel_scale <= 1e6, "[network] pixel_scale must be 1e-6 to 1e6")
    require(abs(network.pixel_mean) <= 1e6, "[network] pixel_mean must be within 1e6 of 0")
    require(network.activation in ACTIVATIONS, f"[network] activation must be one of {', '.join(ACTIVATIONS)}")
    sizes = (*network.hidden, *network.variable_hidden, network.core_size)
    require(
        all(type(size) is int and size >= 1 for size in sizes),
        "[network] hidden, variable_hidden and core_size must be 1 or more",
    )
    apart = _count_weights(1, network.variable_hidden)  # alone, as the observed numbers may not be known yet
    require(apart <= MAX_PARAMETERS, f"[network] variable_hidden has {apart:,} parameters, {MAX_PARAMETERS:,} at most")
    for layer in network.convolutions:
        require(
            isinstance(layer, tuple) and len(layer) == 3 and all(type(part) is int and part >= 1 for part in layer),
            "[network] a convolution is [filters, size, stride], each 1 or more",
        )
    maps = compute_maps(network, pixels)
    require(all(min(shape) >= 1 for shape in maps[1:]), "[network] the convolutions are too large for the observation size")


def check_size(network: Network, pixels: tuple[int, ...] | None, numbers: int, previous: int = 0, outputs: int = 0) -> None:
    """Raises UserError for too many parameters or outputs of convolutions.

    Args:
        network: the layers.
        pixels: height, width and channels of the picture, None without one.
        numbers: count of the other observed numbers.
        previous: count of the numbers about the previous step.
        outputs: count of the policy's outputs.
    """
    mapped = sum((math.prod(shape) for shape in compute_maps(network, pixels)[1:]), start=pixels[-1]) if pixels else 0
    require(mapped <= MAX_OUTPUTS, f"[network] convolutions have {mapped:,} outputs per picture, {MAX_OUTPUTS:,} at most")
    parameters = count_parameters(network, pixels, numbers, previous, outputs)
    require(
        parameters <= MAX_PARAMETERS,
        f"[network] would have {parameters:,} parameters or more, {MAX_PARAMETERS:,} at most: make hidden, "
        "variable_hidden, core_size or convolutions smaller, or the choices of an action fewer",
    )


def count_parameters(
    network: Network, pixels: tuple[int, ...] | None, numbers: int, previous: int = 0, outputs: int = 0
) -> int:
    """Returns a lower bound of the parameters, without the value head; arguments as for `check_size`."""
    apart = count_separate_numbers(network, pixels, numbers)
    count, features = 0, numbers - apart
    if pixels is not None:
        maps = compute_maps(network, pixels)
        for (filters, size, _), (*_, channels) in zip(network.convolutions, maps, strict=False):
            count += size * size * channels * filters
        features += math.prod(maps[-1])
    count += _count_weights(features, network.hidden)
    features = (features, *network.hidden)[-1]
    if apart:
        count += _count_weights(apart, network.variable_hidden)
        features += network.variable_hidden[-1]
    features += previous
    size = network.core_size
    gates = {"none": 0, "lstm": 4, "skip_lstm": 4, "gru": 3}.get(network.core, 1)  # agent/cores.py may know others
    count += size * (3 * features + size) if network.core == "min_gru" else gates * size * (features + size)
    seen = {"none": features, "skip_lstm": features + size}.get(network.core, size)  # by the heads
    return (count if network.shared else 2 * count) + seen * outputs


def _count_weights(features: int, sizes: tuple[int, ...]) -> int:
    """Returns the number of weights in fully connected layers of these sizes on `features` inputs."""
    return sum(before * size for before, size in itertools.pairwise((features, *sizes)))


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
