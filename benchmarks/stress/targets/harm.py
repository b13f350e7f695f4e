"""Harm that an accepted scenario would do later: a network too large for memory."""

from __future__ import annotations

from benchmarks.stress.targets.guards import FindingError
from doom_a3c.settings.games import DoomSpec, GymnasiumSpec
from doom_a3c.settings.network import Network
from doom_a3c.settings.scenarios import Scenario

MAX_WEIGHTS = 2**28  # a gigabyte of float32


def check_harmless(scenario: Scenario, source: str) -> None:
    """Raises FindingError for an accepted scenario that would later run a program or allocate too much memory."""
    if (count := count_weights(scenario.network, scenario)) > MAX_WEIGHTS:
        exceeds = "any memory" if count > 2**40 else "a gigabyte"
        raise FindingError(f"{source} may ask for a network that exceeds {exceeds}")


def count_weights(network: Network, scenario: Scenario) -> int:
    """Estimates the number of weights in a network's hidden layers, core and convolutions."""
    seen, rows, columns = scenario.observation, *map(int, scenario.observation.size)
    channels, count = seen.channels, 0
    for filters, size, stride in network.convolutions:
        count += size * size * channels * filters
        rows, columns, channels = (rows - size) // stride + 1, (columns - size) // stride + 1, filters
    # A Gymnasium game's observations are not known yet: the size is checked again once they are, before anything is made.
    count, width = (0, 1) if isinstance(scenario.game, GymnasiumSpec) else (count, rows * columns * channels)
    for size in network.hidden:
        count, width = count + width * size, size
    variables = len(scenario.game.variables) if isinstance(scenario.game, DoomSpec) else 0
    for size in network.variable_hidden if variables else ():
        count, variables = count + variables * size, size
    width += variables
    return count + (0 if network.core == "none" else 4 * network.core_size * (width + network.core_size))
