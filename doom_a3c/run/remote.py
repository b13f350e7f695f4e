"""Builds the parameter server and the hosts in their own processes, from settings sent as plain data."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from doom_a3c.engines.cluster.messages import GifMessage, Settings
from doom_a3c.record.films.gifs import Gif, GifMaker
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings import scenarios
from doom_a3c.settings.config import Config, cpu_count
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import to_flat

if TYPE_CHECKING:
    from doom_a3c.engines.cluster.host import Host
    from doom_a3c.engines.cluster.messages import Server
    from doom_a3c.engines.cluster.server import ParameterServer


def pack_settings(config: Config, scenario: scenarios.Scenario, restarts: int) -> Settings:
    """Packs the arguments of `build_server` and `build_host` as plain data."""
    return {"config": to_flat(config), "scenario": scenarios.to_plain(scenario), "restarts": restarts}


def build_server(settings: Settings) -> ParameterServer:
    """Builds the parameter server of a run; it waits for its state."""
    scenario, config = _unpack_settings(settings)
    cores = cpu_count() if config.transport == "rollouts" else 1  # its only trainer may use them all
    import_tensorflow(cpu_count(), verbose=False, device=config.device, each=cores)
    from doom_a3c.engines.cluster.server import ParameterServer
    from doom_a3c.record.metrics.progress import Progress
    from doom_a3c.run.builder import Builder  # these import TensorFlow, already silenced

    if config.transport == "rollouts":
        _check_precision(config, "the parameter server")
    builder = Builder(scenario, config)
    return ParameterServer(config, builder.make_model(config), Progress(), builder.make_network("trainer", config.seed))


def build_host(settings: Settings, name: str, number: int, server: Server) -> Host:
    """Builds a host of a run; its `number` seeds its games."""
    scenario, config = _unpack_settings(settings)
    import_tensorflow(config.worker_count, verbose=False, device="cpu")  # a GPU is for the server
    from doom_a3c.engines.cluster.host import Host
    from doom_a3c.engines.cluster.server_client import RunCounts, ServerClient
    from doom_a3c.run.actors import ActorFactory  # these import TensorFlow, silenced by now
    from doom_a3c.run.builder import Builder
    from doom_a3c.run.film_maker import FilmMaker

    if config.transport == "gradients":
        _check_precision(config, f"host {name}")
    builder, counts = Builder(scenario, config), RunCounts()
    builder.get_reward_sums = lambda: counts.reward_stats.now
    gifs: deque[GifMessage] = deque(maxlen=1)
    gif_maker = GifMaker(FilmMaker(builder), builder.steps_per_second, lambda gif: gifs.append(pack_gif(gif)))
    return Host(
        config,
        network=builder.make_network("global", config.seed),
        make_network=partial(builder.make_network, seed=config.seed),
        make_actor=ActorFactory(
            config, builder, counts, counts.reward_stats, gif_maker.add, restarts=settings["restarts"], host=number
        ),
        make_client=partial(ServerClient, name, server, counts=counts, gifs=gifs),
        counts=counts,
        unblock=builder.unblock,
    )


def _unpack_settings(settings: Settings) -> tuple[scenarios.Scenario, Config]:
    scenario = scenarios.from_plain(settings["scenario"], "the run's scenario")
    return scenarios.apply_overrides(scenario, settings["config"], "the run's settings")


def _check_precision(config: Config, learner: str) -> None:
    """Raises UserError, naming the `learner`, if this machine would compute wrong gradients."""
    from doom_a3c.agent.precision import check_can_learn

    try:
        check_can_learn(config.precision)
    except UserError as error:
        raise UserError(f"{learner}: {error}") from None


def pack_gif(gif: Gif) -> GifMessage:
    """Packs a gif for the way from a host to the driver."""
    return cast(GifMessage, {**gif._asdict(), "data": np.frombuffer(gif.data, np.uint8)})


def unpack_gif(message: GifMessage) -> Gif:
    """Unpacks a gif from `pack_gif`."""
    data, size = message["data"].tobytes(), (message["height"], message["width"])
    return Gif(data, *size, message["score"], message["episode"], message["worker"])
