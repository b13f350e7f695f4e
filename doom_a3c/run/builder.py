"""Makes the games and networks of a scenario, for training and playing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from doom_a3c.agent.core_kinds import find_core
from doom_a3c.agent.distributions import Array
from doom_a3c.agent.graphs import Graphs
from doom_a3c.agent.inputs import Inputs, read_input_shapes
from doom_a3c.agent.joint_actions import find_distribution
from doom_a3c.agent.model import GlobalModel
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.opponents import Opponent, OpposedGames, PolicyOpponent
from doom_a3c.agent.player import GameVector
from doom_a3c.agent.previous import PreviousEncoder, PreviousSteps
from doom_a3c.agent.random_policy import RandomPolicy
from doom_a3c.agent.rewards import RewardScale
from doom_a3c.algorithm.optimizers import make_optimizer
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments
from doom_a3c.envs.factory import GameFactory, VideoRecorder
from doom_a3c.envs.flattening import name_numbers
from doom_a3c.envs.games import make_game_factory
from doom_a3c.run.checkpoints.run_record import ActionSizes
from doom_a3c.settings.actions import list_choice_sizes
from doom_a3c.settings.checks import check_size
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError, error_context
from doom_a3c.settings.games import DoomSpec
from doom_a3c.settings.scenarios import Scenario

MakeOpponent = Callable[[int], Opponent]  # from a number of players


class Builder:
    """Makes games and networks that fit each other. Owns the vectors of training games."""

    def __init__(self, scenario: Scenario, config: Config, games: GameFactory | None = None) -> None:
        """`games` is the scenario's factory, if its games were started already.

        Raises:
            UserError: if the scenario cannot be played.
        """
        self.scenario, self._precision = scenario, config.precision
        self._games = games or make_game_factory(scenario.game, scenario.observation, config.game_processes)
        self.agents = self._games.agents  # players of a match that are agents
        self.steps_per_second, self.replayed = self._games.steps_per_second, self._games.replayed
        self.replayer = self._games.make_replayer  # replays episodes from seed and actions, if the games are `replayed`
        self.opposed = 0  # games of each training vector against opponents that do not learn
        self.make_opponent: MakeOpponent = self._make_random_opponent  # a run with a league sets these two
        self._graphs = Graphs()
        self._training: list[GameVector] = []  # all vectors of training games
        facts = self._games.describe()
        self.title, self.can_render, self.left_out = facts.title, facts.draws, facts.left_out
        self._labels, seen = facts.labels, read_input_shapes(facts.observations)
        with error_context(scenario.game.title):
            self.distribution = find_distribution(facts.actions, bool(seen.mask))
        self.previous = PreviousEncoder(scenario.network, self.distribution, RewardScale.from_config(config))
        self.inputs: Inputs = seen._replace(previous=self.previous.size)
        with error_context(f"scenario {scenario.name}"):
            outputs = self.distribution.size - self.distribution.free
            check_size(scenario.network, self.inputs.pixels, self.inputs.variables, self.inputs.previous, outputs)
            find_core(scenario.network.core)  # checked here, where the scenario's name is known
        sizes = tuple(list_choice_sizes(facts.actions))
        self.action_sizes = ActionSizes(sizes, self.distribution.code_size - sum(sizes))
        names = [f"action {index}" for index in range(self.distribution.code_size)]
        self.actions: Sequence[str] = facts.action_names or names  # of each value of each choice, and of each number
        # Returns the statistics that normalize rewards; a run or a trained agent sets it before it makes games.
        self.get_reward_sums: Callable[[], RunningMoments] = lambda: NO_MOMENTS

    def has_learned(self, learned: DoomSpec | None, sizes: ActionSizes | None = None) -> bool:
        """Returns whether this game has the actions of the `learned` game, and of these `sizes`; None matches any."""
        if sizes not in (None, self.action_sizes):
            return False
        if learned is None:
            return True
        from doom_a3c.envs.doom.setup import name_available_actions  # late: it imports ViZDoom

        try:
            pressed = [
                [set(action.split("+")) for action in actions]
                for actions in (self.actions, name_available_actions(learned))
            ]
            return pressed[0] == pressed[1]  # the order of an action's buttons does not matter
        except UserError:  # an untrusted checkpoint may name anything
            return False

    def shows_view_of(self, scenario: Scenario) -> bool:
        """Returns whether its agents see what those of `scenario` see: equal shapes may hold other numbers or pixels."""
        mine, theirs = (
            (one.observation, getattr(one.game, "variables", ()), getattr(one.game, "variable_scales", ()))
            for one in (self.scenario, scenario)
        )
        return mine == theirs

    @property
    def missing_pictures(self) -> str:
        """The reason why episodes cannot be filmed or shown, '' if they can."""
        reason = "renders no RGB picture (render() as rgb_array: uint8, [height, width, 3])"
        return "" if self.can_render else f"{self.scenario.game.title} {reason}"

    def make_training_env(self, games: int, rows: int = 1) -> GameVector:
        """Makes a vector of `games` training games, which keeps its last `rows` observations if it can.

        In the matches of the first `opposed` games, an opponent plays all other players; the rest play each other.
        """
        agents, opposed = self.agents, self.opposed
        env = self._games.make_vector(games + opposed * (agents - 1), limited=False, rows=rows)
        self._training.append(env)
        env = self._show_previous(env, rows)
        if not opposed:
            return env
        shown = [*range(0, opposed * agents, agents), *range(opposed * agents, env.num_envs)]
        return OpposedGames(env, shown, self.make_opponent(env.num_envs - len(shown)))

    def make_evaluation_env(self, games: int, make_opponent: MakeOpponent | None = None) -> GameVector:
        """Makes a vector of `games` games for evaluation or playing, whose episodes have a time limit.

        In matches of several agents the first player is shown; an opponent, by default a random one, plays the others.
        """
        agents = self.agents
        env = self._show_previous(self._games.make_vector(games * agents, limited=True))
        if agents == 1:
            return env
        opponent = (make_opponent or self._make_random_opponent)(games * (agents - 1))
        return OpposedGames(env, range(0, games * agents, agents), opponent)

    def _make_random_opponent(self, players: int) -> Opponent:
        return PolicyOpponent(RandomPolicy(self.distribution), players, np.random.default_rng(0), epsilon=1.0)

    def _show_previous(self, env: GameVector, rows: int = 1) -> GameVector:
        """Adds the previous action and reward to the observations if the network sees them."""
        if not self.inputs.previous:
            return env
        return PreviousSteps(env, self.inputs, self.previous, self.get_reward_sums, rows)

    def close(self) -> None:
        """Closes the training games; the factory closes those that it started early and that were never used."""
        for env in self._training:
            env.close()

    def unblock(self) -> None:
        """Frees threads that wait for hanging training games, by ending those games at once."""
        for env in self._training:
            env.release()  # type: ignore[attr-defined]  # a method of this project's vectors

    def make_recorder(self, env: GameVector, *, large: bool = False) -> VideoRecorder:
        """Makes a recorder of the episodes of an `env` of one game, with `large` pictures if available."""
        return self._games.make_recorder(env, large=large)

    def name_variables(self, numbers: Array) -> list[tuple[str, float]]:
        """Returns the names and unscaled values of one game's variables, [V]."""
        game = self.scenario.game
        if isinstance(game, DoomSpec):
            scales = game.variable_scales or [1.0] * len(numbers)
            return [(name, float(n) / s) for name, n, s in zip(game.variables, numbers, scales, strict=True) if s]
        return name_numbers(self._labels or (), numbers)

    def make_model(self, config: Config) -> GlobalModel:
        """Makes a global model with random weights and the optimizer of the settings."""
        network = self.make_network("global", config.seed)
        return GlobalModel(network, make_optimizer(config.optimizer, network.parameters, config.optimizer_epsilon))

    def make_network(self, name: str, seed: int) -> ACNetwork:
        """Makes a network with random weights; all networks of a builder share their compiled functions."""
        return ACNetwork(self.scenario.network, self.inputs, self.distribution, seed, name, self._precision, self._graphs)
