"""Action masks of Gymnasium environments, which reach the agent with the observations."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
from fakes import complaint
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from doom_a3c.agent.learner import Learner
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.rollouts import Actor
from doom_a3c.engines.cluster.send_buffer import RolloutBuffer
from doom_a3c.engines.cluster.validation import InvalidPushError, PushRules
from doom_a3c.envs import registered
from doom_a3c.envs.games import make_game_factory
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.run.builder import Builder
from doom_a3c.run.play.random_play import play_random_episodes
from doom_a3c.run.play.trial_games import try_actions
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.games import GymnasiumSpec, Observation
from doom_a3c.settings.network import Network

GREY = Observation(size=(20, 24))
FIRST, LATER = [1, 0, 1], [0, 1, 1]


class Masked(gymnasium.Env):
    """Has a mask in every info: FIRST, and LATER from frame 2 on. Episodes have 6 frames."""

    observation_space, action_space = Box(-9, 9, (2,)), Discrete(3)
    masks = staticmethod(lambda time: FIRST if time < 2 else LATER)

    def __init__(self, observations=None, actions=None, masks=None):
        self.observation_space, self.action_space = observations or self.observation_space, actions or self.action_space
        self.masks, self.resets, self.taken = masks or self.masks, 0, []

    def info(self):
        return {"action_mask": self.masks(self.time)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.resets = 0, self.resets + 1
        return self.observation_space.sample(), self.info()

    def step(self, action):
        self.time += 1
        self.taken.append(action)
        ended = self.time >= 6
        return self.observation_space.sample(), 1.0, ended, False, {} if ended else self.info()


class Method(Masked):
    """Has a mask method, as sb3-contrib expects; it must not be called after the end of an episode."""

    def info(self):
        return {}

    def action_masks(self):
        assert self.time < 6
        return self.masks(self.time)


class Masker(gymnasium.Wrapper):
    """Adds such a method to a game, as sb3-contrib's ActionMasker does."""

    def action_masks(self):
        return np.array(FIRST, bool)


def wrap():
    return gymnasium.wrappers.TimeLimit(Masker(Method(masks=lambda time: [0, 0, 1])), 9)


def play(make, frame_skip=1, masked=None):
    """Returns one game as the agent plays it."""
    return registered.make(GymnasiumSpec(id="Game", frame_skip=frame_skip), GREY, make, masked)


@pytest.mark.parametrize("kind", [LocalVectorEnv, ProcessVectorEnv])
@pytest.mark.parametrize("make", [Masked, Method])
def test_a_mask_is_part_of_every_observation(closing, kind, make):
    env = closing(kind([partial(play, make)] * 2))
    assert env.single_observation_space == Dict(variables=Box(-np.inf, np.inf, (2,)), mask=Box(0, 1, (3,), np.uint8))
    seen, _ = env.reset(seed=1)
    masks = [seen["mask"][1].tolist()]
    for _ in range(6):
        seen, _, terminated, _, infos = env.step(np.array([2, 2]))
        masks.append(seen["mask"][1].tolist())
    assert (seen["mask"].dtype, seen["variables"].shape) == (np.uint8, (2, 2))
    assert masks == [FIRST, FIRST, LATER, LATER, LATER, LATER, FIRST]  # the last one belongs to the next episode
    assert terminated.all()
    assert infos["final_obs"][1]["mask"].tolist() == [1, 1, 1]


def test_the_outermost_wrapper_with_a_mask_method_wins():
    assert play(wrap).reset(seed=1)[0]["mask"].tolist() == FIRST


@pytest.mark.parametrize(
    ("observations", "keys"),
    [
        (Box(0, 255, (40, 48, 3), np.uint8), {"pixels", "mask"}),
        (Dict(a=Box(0, 255, (40, 48, 3), np.uint8), b=Discrete(3)), {"pixels", "variables", "mask"}),
        (Discrete(3), {"variables", "mask"}),
    ],
)
def test_a_mask_lies_beside_pixels_and_variables(observations, keys):
    env = play(partial(Masked, observations))
    seen, _ = env.reset(seed=1)
    assert env.observation_space.keys() == seen.keys() == keys
    assert seen in env.observation_space


SIDES = MultiDiscrete([3, 2], start=[1, 0])
ACCEPTED = [
    (Discrete(3), np.array([True, False, True]), [1, 0, 1]),
    (Discrete(3, start=5), (1.0, 0.0, 1.0), [1, 0, 1]),
    (SIDES, np.array([1, 0, 1, 0, 1], np.int8), [1, 0, 1, 0, 1]),
    (SIDES, [np.array([1, 0, 1]), np.array([0, 1])], [1, 0, 1, 0, 1]),
    (SIDES, ([True, False, True], [False, True]), [1, 0, 1, 0, 1]),
    (MultiDiscrete([[2, 2]]), [[1, 0], [0, 1]], [1, 0, 0, 1]),
    (MultiBinary(2), np.array([[1, 0], [1, 1]]), [1, 0, 1, 1]),
    (MultiBinary(2), [1, 0, 1, 1], [1, 0, 1, 1]),
]


@pytest.mark.parametrize("make", [Masked, Method])
@pytest.mark.parametrize(("actions", "mask", "read"), ACCEPTED)
def test_a_mask_is_one_array_or_one_for_each_choice(make, actions, mask, read):
    env = play(partial(make, actions=actions, masks=lambda time: mask))
    assert env.observation_space["mask"].shape == (len(read),)
    assert env.reset(seed=1)[0]["mask"].tolist() == read


REFUSED = [
    (Discrete(3), [1, 0], ("shape (2,)", "3 numbers, one for each action")),
    (Discrete(3), [[1, 0, 1]] * 2, ("shape (2, 3)",)),
    (Discrete(3), None, ("NoneType", "3 numbers")),
    (Discrete(3), {0: 1, 1: 1, 2: 1}, ("type dict",)),
    (Discrete(3), "101", ("type str",)),
    (Discrete(3), ["1", "0", "1"], ("<U1", "1 for allowed")),
    (Discrete(3), 1, ("type int",)),
    (Discrete(3), [], ("type list",)),
    (Discrete(3), [1, 0, 2], ("contains 2", "1 for allowed")),
    (Discrete(3), [1, np.nan, 0], ("contains nan",)),
    (Discrete(3), [-np.inf, 0, 0], ("contains -inf",)),
    (Discrete(3), [0, 0, 0], ("forbids all 3 actions", "terminated")),
    (SIDES, [1, 0, 1, 0], ("shape (4,)", "5 numbers", "3 + 2")),
    (SIDES, [[1, 0], [1, 0, 1]], ("shapes [(2,), (3,)]",)),
    (SIDES, [1, 0, 1, 0, 0], ("forbids all 2 values of action[1]",)),
    (MultiBinary(2), [1, 0], ("4 numbers, not pressed and pressed for each of 2 buttons",)),
    (MultiBinary(2), [1, 0, 0, 0], ("forbids all 2 values of action[1]",)),
]


@pytest.mark.parametrize(("make", "source"), [(Masked, "info['action_mask'] "), (Method, "action_masks() ")])
@pytest.mark.parametrize(("actions", "mask", "words"), REFUSED)
def test_a_mask_that_does_not_fit_is_refused(make, source, actions, mask, words):
    good = [np.ones(size, int) for size in ([3, 2] if actions is SIDES else [2, 2] if actions == MultiBinary(2) else [3])]
    env = play(partial(make, actions=actions, masks=lambda time: mask if time else good))
    env.reset(seed=1)
    said = complaint(env.step, env.action_space.sample())
    assert said.startswith(f"{make.__name__}: {source}")
    assert all(word in said for word in words), said


def test_a_wrong_mask_of_many_choices_gives_a_short_error():
    env = play(partial(Method, actions=MultiDiscrete([2, 3] * 500), masks=lambda time: [1, *[[0]] * 999]), masked=False)
    said = complaint(env.reset)
    assert len(said) < 500, said
    assert all(word in said for word in ("Method: action_masks()", "2500 numbers"))


def test_masks_in_only_some_infos_are_refused():
    some = play(lambda: Masked(masks=lambda time: FIRST))
    some.reset(seed=1)
    some.unwrapped.info = dict
    said = complaint(some.step, 0)
    assert all(word in said for word in ("Masked: ", "action_mask", "reset() and step()"))
    late = play(Masked, masked=False)
    assert all(word in complaint(late.reset) for word in ("Masked: ", "action_mask", "reset() and step()"))


def test_an_action_masks_attribute_must_be_a_method():
    said = complaint(play, type("Game", (Method,), {"action_masks": np.ones(3)}))
    assert all(word in said for word in ("action_masks", "ndarray", "method"))


@pytest.mark.parametrize(("action", "frames", "final"), [(2, 4, LATER), (0, 2, LATER)])
def test_frame_skip_stops_before_an_illegal_action(action, frames, final):
    env = play(Masked, frame_skip=4)
    env.reset(seed=1)
    seen, reward, *_ = env.step(action)
    assert (reward, len(env.unwrapped.taken), seen["mask"].tolist()) == (frames, frames, final)


@pytest.mark.parametrize("actions", [Box(-1, 1, (2,)), Tuple((Discrete(3), Discrete(2))), Dict(look=Box(-1, 1, (2,)))])
@pytest.mark.parametrize(("make", "source"), [(Method, "action_masks()"), (Masked, "info['action_mask']")])
def test_masks_of_unmaskable_actions_are_left_out_and_reported(closing, make, source, actions):
    make_env = partial(make, actions=actions)
    games = make_game_factory(GymnasiumSpec(id="Game"), GREY, make_env=make_env)
    assert isinstance(games.describe().observations, Box)
    assert games.describe().left_out == [f"{source} ({type(actions).__name__} actions)"]
    vector = closing(games.make_vector(2, limited=True))
    vector.reset(seed=1)
    vector.step(vector.action_space.sample())  # later masks raise no error
    assert play(partial(make, actions=actions), masked=False).unwrapped.resets == 0


def test_only_a_factorys_first_game_is_reset_to_look_for_masks():
    games = make_game_factory(GymnasiumSpec(id="Game"), GREY, make_env=Masked)
    assert "mask" in games.describe().observations.spaces
    assert games.make_single(None).unwrapped.resets == 0
    assert play(Masked).unwrapped.resets == 1
    assert play(Method).unwrapped.resets == 0


def test_looking_for_masks_changes_no_seeded_game():
    class Random(Masked):
        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.uniform(-1, 1, 2), {}

    seen = [play(Random, masked=masked).reset(seed=7)[0].tolist() for masked in (None, False)]
    assert seen[0] == seen[1]


def test_taxi_has_masks():
    env = registered.make(GymnasiumSpec(id="Taxi-v4"), GREY)
    seen, _ = env.reset(seed=1)
    assert seen["variables"].sum() == 1
    assert seen["mask"].shape == (6,)
    assert 0 < seen["mask"].sum() < 6


class Strict(Masked):
    """Fails the test if a forbidden action is taken; its mask changes with every frame."""

    def __init__(self, actions):
        choices = [3] if isinstance(actions, Discrete) else [3, 2]
        self.draw = np.random.default_rng(0).integers
        super().__init__(actions=actions, masks=lambda time: self.mask)
        self.choices, self.mask = choices, None

    def info(self):
        parts = [self.draw(2, size=size) for size in self.choices]
        for part in parts:
            part[self.draw(len(part))] = 1
        self.mask = np.concatenate(parts)
        return super().info()

    def step(self, action):
        starts = np.cumsum([0, *self.choices])[:-1]
        assert all(self.mask[start + choice] for start, choice in zip(starts, np.atleast_1d(action), strict=True))
        return super().step(action)


def assert_only_allowed_actions_are_pushed(config, network, played):
    sizes = {"rollout_length": 40, "envs_per_worker": 4, "engine": "cluster", "transport": "rollouts"}
    rules = PushRules(replace(config, **sizes), network)
    buffer = RolloutBuffer(1)
    buffer.put(played)
    rules.check(push := buffer.take_push())
    push["rollout"]["observations"]["mask"] ^= 1
    with pytest.raises(InvalidPushError, match="forbid"):
        rules.check(push)


@pytest.mark.parametrize(
    ("processes", "actions", "core"),
    [(0, Discrete(3), "none"), (0, MultiDiscrete([3, 2]), "lstm"), (1, MultiDiscrete([3, 2]), "lstm")],
)
def test_no_player_takes_a_forbidden_action(processes, actions, core):
    scenario = replace(catalog.find("CartPole-v1"), network=Network(hidden=(8,), core=core, core_size=8))
    config = Config()
    games = make_game_factory(GymnasiumSpec(id="Game", frame_skip=1), GREY, processes, partial(Strict, actions))
    builder = Builder(scenario, config, games)
    assert builder.inputs.mask == builder.distribution.size
    network = builder.make_network("network", 1)
    network.parameters[0].assign(np.random.default_rng(0).normal(0, 3, network.parameters[0].shape))
    player = Player.from_seed(builder.make_training_env(4), Policy(network), np.random.SeedSequence(1))
    actor = Actor(player, rollout_length=40, frame_skip=1, discount=0.99, epsilons=lambda: np.full(4, 0.5, np.float32))
    rollout = (played := actor.play_rollout()).rollout
    actor.close()
    mask, code = (
        rollout.observations["mask"][:-1],
        builder.distribution.encode(rollout.actions.reshape(160, *actions.shape)),
    )
    assert (mask.reshape(160, -1) >= code).all()
    assert np.isfinite(rollout.log_probs).all()
    learner = Learner(network, config, 0)
    assert learner.compute_gradients([learner.prepare(rollout)], 0).finite
    assert_only_allowed_actions_are_pushed(config, network, played)
    assert len(play_random_episodes(builder, 20, 1)) == 20
    names, outcomes = try_actions(games)
    assert len(outcomes) == len(names)
    builder.close()
