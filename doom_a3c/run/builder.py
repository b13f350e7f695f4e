"""Makes the games and networks of a scenario, for training and playing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import create_empty_array

from doom_a3c.agent.cores import find_core
from doom_a3c.agent.distributions import distribution_over
from doom_a3c.agent.graphs import Graphs
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork, Inputs, observation_inputs
from doom_a3c.algorithm.optimizers import make_optimizer
from doom_a3c.envs.games import GameFactory, VideoRecorder, make_game_factory
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.network_checks import check_size
from doom_a3c.settings.scenarios import Scenario


class Builder:
    """Makes games and networks that fit each other.

    Raises:
        UserError: if the scenario cannot be played.
    """

    def __init__(self, scenario: Scenario, config: Config, games: GameFactory | None = None) -> None:
        """`games` are the scenario's, if some were started already."""
        self.scenario, self._precision = scenario, config.precision
        self._games = games or make_game_factory(scenario.game, scenario.observation, config.game_processes)
        self.steps_per_second, self.replayed = self._games.steps_per_second, self._games.replayed
        self.replayer = self._games.make_replayer  # of episodes, by seed and actions, where the games are `replayed`
        self._graphs = Graphs()
        self._training: list[Any] = []  # every vector that training plays
        self._observations, actions, self.title, names, self.draws = self._games.describe()
        self.inputs: Inputs = observation_inputs(self._observations)
        with error_context(scenario.game.title):
            self.distribution = distribution_over(actions)
        self.actions: Sequence[str] = names or [f"action {index}" for index in range(self.distribution.size)]
        with error_context(f"scenario {scenario.name}"):
            check_size(scenario.network, self.inputs.pixels, self.inputs.variables)
            find_core(scenario.network.core)  # networks are made later, and know no scenario's name

    def has_learned(self, learned: DoomSpec | None) -> bool:
        """Tells whether the actions are those of the `learned` game; True if that is None."""
        if learned is None:
            return True
        from doom_a3c.envs.doom.setup import name_available_actions  # late: it imports ViZDoom

        try:
            pressed = [
                [set(action.split("+")) for action in actions]
                for actions in (self.actions, name_available_actions(learned))
            ]
            return pressed[0] == pressed[1]  # whatever the order in which an action names its buttons
        except UserError:  # an untrusted checkpoint may name anything
            return False

    @property
    def missing_pictures(self) -> str:
        """Why episodes cannot be filmed or shown, '' if they can."""
        reason = "gives no RGB picture when rendered (render() as rgb_array: uint8, [height, width, 3])"
        return "" if self.draws else f"{self.scenario.game.title} {reason}"

    def example(self, games: int) -> Any:
        """Returns zero observations of `games` games."""
        return create_empty_array(self._observations, games)

    def training_env(self, games: int, rows: int = 1) -> VectorEnv[Any, Any, Any]:
        """Returns that many games, stepped together, which keep `rows` observations if they can."""
        env = self._games.make_vector(games, limited=False, rows=rows)
        self._training.append(env)
        return env

    def evaluation_env(self, games: int) -> VectorEnv[Any, Any, Any]:
        """Returns that many games for evaluation or playing, where an episode ends at last: some have no time-out."""
        return self._games.make_vector(games, limited=True)

    def close(self) -> None:
        """Closes the games of training; those that were started ahead and never asked for are their starter's."""
        for env in self._training:
            env.close()

    def unblock(self) -> None:
        """Frees threads that wait for training games which do not answer: those end at once."""
        for env in self._training:
            env.release()

    def recorder(self, env: VectorEnv[Any, Any, Any], *, large: bool = False) -> VideoRecorder:
        """Returns a recorder of the episodes of an `env` of one game, with `large` pictures if it has them."""
        return self._games.make_recorder(env, large=large)

    def variables(self, numbers: Any) -> list[tuple[str, float]]:
        """Returns the names and unscaled values of one game's variables, [V]."""
        game = self.scenario.game
        if isinstance(game, DoomSpec):
            scales = game.variable_scales or [1.0] * len(numbers)
            return [(name, float(n) / s) for name, n, s in zip(game.variables, numbers, scales, strict=True) if s]
        return [(f"[{index}]", float(number)) for index, number in enumerate(numbers)]

    def model(self, config: Config) -> GlobalModel:
        """Returns a freshly initialised global model with the optimizer that the settings name."""
        network = self.network("global", config.seed)
        return GlobalModel(network, make_optimizer(config.optimizer, network.parameters, config.optimizer_epsilon))

    def network(self, name: str, seed: int) -> ACNetwork:
        """Returns a freshly initialised network; all of them share what is compiled for one."""
        return ACNetwork(self.scenario.network, self.inputs, self.distribution, seed, name, self._precision, self._graphs)
