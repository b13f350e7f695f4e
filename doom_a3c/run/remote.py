"""What a cluster's processes make of the settings that reach them as plain data."""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import TYPE_CHECKING, Any

from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings import scenarios
from doom_a3c.settings.config import Config
from doom_a3c.settings.derived import cpu_count
from doom_a3c.settings.fields import plain

if TYPE_CHECKING:
    from doom_a3c.engines.cluster.host import Host
    from doom_a3c.engines.cluster.messages import Server
    from doom_a3c.engines.cluster.server import ParameterServer


def settings(config: Config, scenario: scenarios.Scenario, restarts: int) -> dict[str, Any]:
    """Returns everything that `server` and `host` need."""
    return {"config": plain(config), "scenario": scenarios.to_plain(scenario), "restarts": restarts}


def server(settings: dict[str, Any]) -> ParameterServer:
    """Returns the parameter server of a run; it waits for its state."""
    scenario, config = _resolved(settings)
    cores = cpu_count() if config.transport == "rollouts" else 1  # its one trainer may have them all
    import_tensorflow(cpu_count(), verbose=False, device=config.device, each=cores)
    from doom_a3c.engines.cluster.server import ParameterServer
    from doom_a3c.record.progress import Progress
    from doom_a3c.run.builder import Builder  # these import TensorFlow, silenced by now

    builder = Builder(scenario, config)
    return ParameterServer(config, builder.model(config), Progress(), builder.network("trainer", config.seed))


def host(settings: dict[str, Any], name: str, number: int, server: Server) -> Host:
    """Returns a host of a run; hosts of different numbers play different games."""
    scenario, config = _resolved(settings)
    config = dataclasses.replace(config, workers=config.workers or max(1, cpu_count() // config.hosts))
    import_tensorflow(config.workers, verbose=False, device="cpu")  # a GPU is for the server
    from doom_a3c.engines.cluster.host import Host
    from doom_a3c.engines.cluster.server_client import RunCounts
    from doom_a3c.record.gifs import Gif, GifMaker
    from doom_a3c.run.actors import ActorFactory  # these import TensorFlow, silenced by now
    from doom_a3c.run.builder import Builder
    from doom_a3c.run.film_maker import FilmMaker

    builder, counts = Builder(scenario, config), RunCounts()
    gifs: deque[Gif] = deque(maxlen=1)
    recorded = GifMaker(FilmMaker(builder), builder.steps_per_second, gifs.append).add
    return Host(
        name,
        server,
        config=config,
        network=builder.network("global", config.seed),
        make_network=lambda network: builder.network(network, config.seed),
        make_actor=ActorFactory(config, builder, counts, recorded, restarts=settings["restarts"], host=number),
        counts=counts,
        gifs=gifs,
        unblock=builder.unblock,
        number=number,
    )


def _resolved(settings: dict[str, Any]) -> tuple[scenarios.Scenario, Config]:
    scenario = scenarios.from_plain(settings["scenario"], "the run's scenario")
    return scenarios.resolved(scenario, settings["config"], "the run's settings")
