"""What a cluster's processes make of the settings that reach them as plain data."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from doom_a3c import scenarios
from doom_a3c.cli import command
from doom_a3c.config import Config, cpu_count
from doom_a3c.settings import plain

if TYPE_CHECKING:
    from doom_a3c.engines.host import Host
    from doom_a3c.engines.server import ParameterServer


def settings(config: Config, scenario: scenarios.Scenario, restarts: int) -> dict[str, Any]:
    """Returns everything that `server` and `host` need."""
    return {"config": plain(config), "scenario": scenarios.record(scenario), "restarts": restarts}


def server(settings: dict[str, Any]) -> ParameterServer:
    """Returns the parameter server of a run; it waits for its state."""
    scenario, config = _resolved(settings)
    cores = cpu_count() if config.transport == "rollouts" else 1  # its one trainer may have them all
    command.import_tensorflow(cpu_count(), verbose=False, device=config.device, each=cores)
    from doom_a3c.cli.build import Builder
    from doom_a3c.engines.server import ParameterServer
    from doom_a3c.progress import Progress

    builder = Builder(scenario, config)
    return ParameterServer(config, builder.model(config), Progress(), builder.network("trainer", config.seed))


def host(settings: dict[str, Any], name: str, number: int, call: Callable[..., Any]) -> Host:
    """Returns a host of a run; hosts of different numbers play different games."""
    scenario, config = _resolved(settings)
    config = dataclasses.replace(config, workers=config.workers or max(1, cpu_count() // config.hosts))
    command.import_tensorflow(config.workers, verbose=False, device="cpu")  # a GPU is for the server
    from doom_a3c.cli.actors import ActorFactory
    from doom_a3c.cli.build import Builder
    from doom_a3c.engines.host import Host
    from doom_a3c.progress import Progress
    from doom_a3c.recording import Gif, GifMaker

    builder, progress = Builder(scenario, config), Progress()
    gifs: deque[Gif] = deque(maxlen=1)
    filmed = GifMaker(builder.steps_per_second, gifs.append).add
    return Host(
        name,
        call,
        config=config,
        network=builder.network("global", config.seed),
        make_network=lambda network: builder.network(network, config.seed),
        make_actor=ActorFactory(config, builder, progress, filmed, restarts=settings["restarts"], host=number),
        progress=progress,
        gifs=gifs,
        unblock=builder.unblock,
    )


def _resolved(settings: dict[str, Any]) -> tuple[scenarios.Scenario, Config]:
    scenario = scenarios.from_record(settings["scenario"], "the run's scenario")
    return scenarios.resolved(scenario, settings["config"], "the run's settings")
