"""A match of a person against an agent, in real time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, Protocol, cast

import numpy as np

from doom_a3c.envs.doom.make_env import make_seat_server
from doom_a3c.envs.processes.client import GameProcess, ProcessError, answer_all, gather
from doom_a3c.record.films.gif_writer import Picture
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.seated_match import begin_match, make_players, seat_players, stack_observations
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.games import DoomSpec


class Controls(Protocol):
    """A window with controls."""

    def show(self, picture: Picture, pictures_per_second: float) -> None:
        """Shows a picture, [height, width, 3], for as long as it lasts."""

    def read_controls(self) -> Sequence[float]:
        """Returns the states of `envs.doom.human_seat.CONTROLS`."""


class MatchScore(NamedTuple):
    """Frags in a match."""

    person: float
    agents: Sequence[float]
    whole: bool = True  # whether it was played to its end


def play_person(agent: TrainedAgent, controls: Controls, seed: int) -> MatchScore:
    """Plays a match of a person, who hosts it, against an agent, who has all other seats and samples its actions.

    An interrupt ends the match early, with the score so far.

    Raises:
        UserError: if the agent plays no match of several agents, or an engine fails.
    """
    scenario, agents = agent.record.scenario, agent.builder.agents
    game = scenario.game
    require(agents > 1, f"{scenario.name} has one agent: [game.match] agents = 2 makes a match of two")
    sees_last = f"the network of {scenario.name} sees its last action or reward: --against-me plays only agents that do not"
    require(not agent.builder.inputs.previous, sees_last)
    makers = [
        partial(make_seat_server, cast(DoomSpec, game), scenario.observation, number, person=number == 0)
        for number in range(agents)
    ]
    try:
        with seat_players(makers) as (servers, port):
            return _play(servers, agent, controls, seed, port)
    except ProcessError as error:
        raise UserError(f"the match failed ({error}); run play.py again") from None


def _play(servers: Sequence[GameProcess], agent: TrainedAgent, controls: Controls, seed: int, port: int) -> MatchScore:
    (_, picture), *starts = begin_match(servers, seed, port)
    person, *others = servers
    players = make_players(agent, len(others), seed)
    seen, resets = [observation for observation, _ in starts], np.ones(len(others), np.float32)
    frags, ended = np.zeros(len(servers)), False
    with contextlib.suppress(KeyboardInterrupt):
        while not ended:
            for server, action in zip(others, players.act(stack_observations(seen), resets), strict=True):
                server.ask("step", action)
            resets = np.zeros_like(resets)
            for _ in range(agent.record.scenario.game.frame_skip):
                controls.show(picture, DoomSpec.frames_per_second)
                try:
                    _, reward, _, picture = person.call("step", list(controls.read_controls()))
                except ProcessError as error:
                    raise gather(others, error)[1] or error from None  # perhaps one of the others knows why
                frags[0] += reward
            results = answer_all(others)
            seen = [observation for observation, *_ in results]
            frags[1:] += [reward for _, reward, _, _ in results]
            ended = any(end for _, _, end, _ in results)
    return MatchScore(float(frags[0]), frags[1:].tolist(), ended)
