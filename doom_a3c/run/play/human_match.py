"""A match of a person against an agent, in real time."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import numpy as np

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.policy import Policy
from doom_a3c.envs.processes.client import GameProcess, ProcessError
from doom_a3c.envs.processes.connection import Wire
from doom_a3c.envs.processes.ports import Ports
from doom_a3c.envs.processes.supervisor import introduce
from doom_a3c.record.films.gif_writer import Picture
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.games import DoomSpec, Observation
from doom_a3c.settings.interface import map_nested

if TYPE_CHECKING:
    from doom_a3c.envs.doom.human_seat import SeatServer  # loads ViZDoom, which only game servers need


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
    require(
        agents > 1 and isinstance(game, DoomSpec),
        f"{scenario.name} has one agent: [game.match] agents = 2 makes a match of two",
    )
    require(not agent.builder.inputs.previous, f"{scenario.name} shows the agent its last action, as no person can")
    ports = Ports()
    servers = [GameProcess(partial(_make_seat, cast(DoomSpec, game), scenario.observation, seat)) for seat in range(agents)]
    try:
        for server in servers:
            server.answer()
        introduce(servers)
        return _play(servers, agent, controls, seed, ports.renew(0))
    except ProcessError as error:
        raise UserError(f"the match failed ({error}); run play.py again") from None
    finally:
        for server in servers:
            server.end()
        ports.close()


def _make_seat(game: DoomSpec, observation: Observation, number: int, wire: Wire) -> SeatServer:
    from doom_a3c.envs.doom.human_seat import HumanSeat, SeatServer
    from doom_a3c.envs.doom.seat_env import SeatEnv

    return SeatServer(SeatEnv if number else HumanSeat, game, observation, number, wire)


def _play(servers: Sequence[GameProcess], agent: TrainedAgent, controls: Controls, seed: int, port: int) -> MatchScore:
    for server in servers:
        server.ask("begin", seed, port)
    (_, picture), *starts = [server.answer() for server in servers]
    person, *others = servers
    decide = _make_decider(agent, len(others), seed)
    seen, resets = [observation for observation, _ in starts], np.ones(len(others), np.float32)
    frags, ended = np.zeros(len(servers)), False
    with contextlib.suppress(KeyboardInterrupt):
        while not ended:
            for server, action in zip(others, decide(seen, resets), strict=True):
                server.ask("step", action)
            resets = np.zeros_like(resets)
            for _ in range(agent.record.scenario.game.frame_skip):
                controls.show(picture, DoomSpec.frames_per_second)
                _, reward, _, picture = person.call("step", list(controls.read_controls()))
                frags[0] += reward
            results = [server.answer() for server in others]
            seen = [observation for observation, *_ in results]
            frags[1:] += [reward for _, reward, _, _ in results]
            ended = any(end for _, _, end, _ in results)
    return MatchScore(float(frags[0]), frags[1:].tolist(), ended)


def _make_decider(agent: TrainedAgent, players: int, seed: int) -> Any:
    """Returns a function from observations and resets to the actions of the agent's players, whose memory it owns."""
    policy, random = Policy(agent.network), np.random.default_rng(seed)
    state = policy.initial_state(players)

    def decide(seen: Sequence[Any], resets: Any) -> Actions:
        nonlocal state
        decision = policy(map_nested(lambda *parts: np.stack(parts), *seen), resets, state)
        state = decision.core_state
        return policy.distribution.sample(decision.logits, random)

    return decide
