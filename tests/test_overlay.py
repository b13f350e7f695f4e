"""The overlay: observation, policy, value and saliency beside a game."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from scipy.ndimage import gaussian_filter

from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.saliency import BLUR, SPOT, Saliency
from doom_a3c.record.films.overlay import (
    HEIGHT,
    WIDTH,
    ActionView,
    Overlay,
    Salience,
    StepView,
    newest_picture,
    place_beside,
)
from doom_a3c.run.action_views import view_action
from doom_a3c.run.step_view import TrainingViewer

ACTIONS = ["MOVE_LEFT", "MOVE_RIGHT", "ATTACK"]
SEEN = np.random.default_rng(0).integers(256, size=(84, 84, 3), dtype=np.uint8)


def choices(*shares, taken=1):
    return [ActionView(share, f"{100 * share:.0f}%", place == taken) for place, share in enumerate(shares)]


MOMENT = StepView(SEEN, [("HEALTH", 100.0)], choices(0.2, 0.5, 0.3), 0.4, 1, -4.0, -4.0)


def panel(*moments, actions=ACTIONS):
    overlay = Overlay(actions)
    return [overlay.panel(moment) for moment in moments][-1]


@pytest.mark.parametrize(
    "change",
    [
        {"seen": 255 - SEEN},
        {"seen": None},
        {"variables": [("HEALTH", 99.0)]},
        {"actions": choices(0.1, 0.6, 0.3)},
        {"actions": choices(0.2, 0.5, 0.3, taken=2)},
        {"actions": [*choices(0.2, 0.5), ActionView(0.3, "+0.30", False)]},
        {"value": 0.5},
        {"step": 2},
        {"reward": 0.0},
        {"score": 95.0},
        {"salience": Salience(np.ones((84, 84)), np.zeros((84, 84)))},
    ],
)
def test_every_field_of_a_step_view_is_drawn(change):
    base = panel(MOMENT)
    assert base.shape == (HEIGHT, WIDTH, 3)
    assert (panel(MOMENT) == base).all()
    assert (panel(MOMENT._replace(**change)) != base).any()


def test_policy_and_value_saliency_have_their_own_colours():
    dark, light = np.zeros((84, 84)), np.ones((84, 84))
    black = MOMENT._replace(seen=np.zeros((84, 84, 3), np.uint8))
    left, right = (
        panel(black._replace(salience=Salience(light, dark))),
        panel(black._replace(salience=Salience(dark, light))),
    )
    area = np.s_[40:140, 175:270]
    assert left[area].reshape(-1, 3).mean(axis=0).argmax() == 2  # blue
    assert right[area].reshape(-1, 3).mean(axis=0).argmax() == 0  # red


@pytest.mark.parametrize(("pictures", "channels"), [(1, 1), (3, 1), (4, 1), (1, 3), (2, 3)])
def test_the_newest_picture_of_a_stack_is_shown_in_its_colours(pictures, channels):
    stack = np.random.default_rng(1).integers(256, size=(4, 5, pictures * channels), dtype=np.uint8)
    seen = newest_picture(stack, pictures)
    assert seen.shape == (4, 5, 3)
    for channel in range(3):
        assert (seen[..., channel] == stack[..., -channels:][..., channel % channels]).all()


def test_of_many_actions_only_the_likeliest_are_shown():
    probabilities = np.full(40, 0.001)
    probabilities[37] = 1 - 39 * 0.001
    names = [f"ACTION_{index}" for index in range(40)]
    many = MOMENT._replace(actions=choices(*probabilities, taken=37))
    other = [*names[:37], "ANOTHER", *names[38:]]
    assert (panel(many, actions=names) != panel(many, actions=other)).any()
    assert (panel(many, actions=names) == panel(many, actions=[*names[:39], "UNSEEN"])).all()


def test_chosen_actions_are_shown_even_if_unlikely():
    views = [*choices(*[0.05] * 20, taken=17), *choices(*[0.1] * 10, taken=9)]  # e.g. turns, and likelier weapons
    names = [f"ACTION_{index}" for index in range(30)]
    for taken in (17, 29):
        other = [*names[:taken], "ANOTHER", *names[taken + 1 :]]
        many = MOMENT._replace(actions=views)
        assert (panel(many, actions=names) != panel(many, actions=other)).any()


def test_shortened_names_stay_distinct():
    turns = [f"TURN_LEFT_RIGHT_DELTA={amount}" for amount in (-4, 4, 0.5)]
    assert (panel(MOMENT, actions=turns) != panel(MOMENT, actions=[turns[1], turns[0], turns[2]])).any()
    shots = [f"{first}+TURN_LEFT_RIGHT_DELTA=4" for first in ("ATTACK", "MOVE_FORWARD", "USE")]
    assert (panel(MOMENT, actions=shots) != panel(MOMENT, actions=[shots[1], shots[0], shots[2]])).any()


def test_a_new_episode_clears_the_values_of_the_old_one():
    later = MOMENT._replace(step=2, value=9.0)
    assert (panel(MOMENT, later, MOMENT) == panel(MOMENT)).all()
    assert (panel(MOMENT, later) != panel(later)).any()


def test_non_finite_numbers_can_be_drawn():
    broken = view_action(Categorical(3), np.full(3, np.nan), np.array(0))
    nothing = MOMENT._replace(actions=broken, value=float("nan"), variables=[("X", float("inf"))])
    assert panel(nothing).shape == (HEIGHT, WIDTH, 3)


def test_the_width_of_a_wide_game_is_limited():
    assert place_beside(np.zeros((4, 400, 3), np.uint8), panel(MOMENT)).shape == (HEIGHT, 1280 + WIDTH, 3)


@pytest.mark.parametrize("size", [(480, 640), (210, 160), (240, 321), (84, 84), (2000, 1000)])
def test_games_are_scaled_to_the_panels_height_and_even_width(size):
    picture = place_beside(np.full((*size, 3), 7, np.uint8), panel(MOMENT))
    height, width, _ = picture.shape
    assert height == HEIGHT
    assert width % 2 == 0
    assert abs((width - WIDTH) / height - size[1] / size[0]) < 0.01
    assert (picture[:, : width - WIDTH] == 7).all()


@pytest.mark.parametrize("variables", [0, 2])
@pytest.mark.parametrize("core", ["lstm", "none"])
def test_saliency_measures_the_effect_of_blurred_spots(make_network, core, variables):
    network = make_network(core=core, variables=variables)
    random = np.random.default_rng(1)
    pixels = random.integers(256, size=(1, 8, 8, 1), dtype=np.uint8)
    numbers = random.normal(size=(1, variables)).astype(np.float32)
    state = tuple(random.normal(size=part.shape).astype(np.float32) for part in network.initial_state(1))

    def decide(picture):
        seen = {"pixels": picture, "variables": numbers} if variables else picture
        output, _ = network.step(seen, tf.zeros(1), state)
        return output.logits.numpy()[0], float(output.values[0])

    logits, value = decide(pixels.astype(np.float32))
    blurred = gaussian_filter(pixels[0, :, :, 0].astype(np.float32), BLUR)
    policy_changes, value_changes = np.zeros((2, 2)), np.zeros((2, 2))
    for row, y in enumerate((2, 7)):
        for column, x in enumerate((2, 7)):
            rows, columns = np.mgrid[0:8, 0:8]
            mask = np.exp(-((rows - y) ** 2 + (columns - x) ** 2) / (2 * SPOT**2))
            spotted = pixels[0, :, :, 0] * (1 - mask) + blurred * mask
            other_logits, other_value = decide(spotted[None, :, :, None].astype(np.float32))
            policy_changes[row, column] = ((other_logits - logits) ** 2).sum() / 2
            value_changes[row, column] = (other_value - value) ** 2 / 2
    found = Saliency(network)(
        {"pixels": pixels, "variables": numbers} if variables else pixels, np.zeros(1, np.float32), state
    )
    for maps, changes in zip(found, (policy_changes, value_changes), strict=True):
        expected = tf.image.resize(changes[..., None], (8, 8)).numpy()[..., 0]
        assert changes.max() > 0
        np.testing.assert_allclose(maps, expected, rtol=1e-3, atol=1e-4 * changes.max())


@pytest.mark.parametrize("salience", [False, True])
def test_a_training_view_shows_the_networks_input_and_saliency(make_network, salience):
    network = make_network(core="lstm")
    observation = SimpleNamespace(observation=SimpleNamespace(stack=1))
    parts = {"inputs": network.inputs, "distribution": network.distribution}
    builder = SimpleNamespace(**parts, name_variables=lambda numbers: [], scenario=observation)
    policy, random = Policy(network), np.random.default_rng(0)
    viewer = TrainingViewer(policy, builder, salience)
    state, resets = policy.initial_state(3), np.ones(3, np.float32)
    most = np.zeros((2, 1, 1))
    for step in range(3):
        seen = random.integers(256, size=(3, *network.inputs.pixels), dtype=np.uint8)
        decision = policy(seen, resets, state)
        taken = {"actions": np.ones(3, np.int32), "rewards": [2.0] * 3}
        played = SimpleNamespace(observations=seen, resets=resets, decision=decision, **taken)
        moment = viewer.view_step(played, state)
        assert (moment.seen == seen[0]).all()
        assert (moment.actions[1].taken, moment.reward, moment.score, moment.step) == (
            True,
            2.0,
            2.0 * (step + 1),
            step + 1,
        )
        assert moment.value == decision.values[0]
        if salience:
            maps = np.stack(Saliency(network)(seen[:1], resets[:1], tuple(part[:1] for part in state)))
            most = np.maximum(most, maps.max(axis=(1, 2), keepdims=True))
            np.testing.assert_allclose(np.stack(moment.salience), maps / most, rtol=1e-4, atol=1e-6)
        else:
            assert moment.salience is None
        state, resets = decision.core_state, np.zeros(3, np.float32)
