"""The systems compared: how each is started, its packages, and the notes to its figures."""

from __future__ import annotations

import json
import subprocess
from typing import NamedTuple

from doom_a3c.settings.errors import UserError


class System(NamedTuple):
    """A program to be measured."""

    title: str
    runner: tuple[str, ...]  # module and flags
    packages: tuple[str, ...] = ()  # needed in the peers' environment; without any it runs in this program's
    shown: str = ""  # the package whose version the table shows
    learns: bool = True
    optional: bool = False  # a missing package makes a failed row, not an error
    tuned: str = ""  # the games that its settings were tuned on
    note: str = ""


RUNNERS = "benchmarks.comparison.runners"
SB3 = ("stable-baselines3", "torch", "vizdoom", "opencv-python")
ZOO = "Atari with {} games at once (RL Baselines3 Zoo), nothing on Doom"
SYSTEMS = {
    "this": System(
        "doom_a3c, default",
        (f"{RUNNERS}.this_training",),
        tuned="basic itself, in more than 50 recorded runs, and ten other Doom scenarios",
        note="12 updates a rollout; convolutions, 256 units, LSTM 256",
    ),
    "this_one_update": System(
        "doom_a3c, one update a rollout",
        (f"{RUNNERS}.this_training", "--epochs=1", "--minibatches=1"),
        tuned="as the default, whose other settings it has",
        note="A3C; otherwise as the default",
    ),
    "sample_factory": System(
        "Sample Factory, APPO with LSTM",
        (f"{RUNNERS}.sample_factory_appo",),
        ("sample-factory", "torch", "vizdoom"),
        "sample-factory",
        tuned="its defaults for Doom, by its authors on other scenarios; workers and batch for frames/s here",
        note="its own basic: colour, 128x72; its own convolutions, 256 units, LSTM 256; "
        "a time-out is bootstrapped by the value before the last step",
    ),
    "sb3_a2c": System(
        "stable-baselines3, A2C",
        (f"{RUNNERS}.stable_baselines", "--algorithm=a2c"),
        SB3,
        SB3[0],
        tuned=ZOO.format(16),
        note="no LSTM",
    ),
    "sb3_ppo": System(
        "stable-baselines3, PPO",
        (f"{RUNNERS}.stable_baselines", "--algorithm=ppo"),
        SB3,
        SB3[0],
        tuned=ZOO.format(8),
        note="no LSTM",
    ),
    "sb3_recurrent_ppo": System(
        "sb3-contrib, RecurrentPPO",
        (f"{RUNNERS}.stable_baselines", "--algorithm=recurrent_ppo"),
        ("sb3-contrib", *SB3),
        "sb3-contrib",
        tuned=f"{ZOO.format(8)}, PPO without an LSTM",
        note="LSTM 256",
    ),
    "this_raw": System(
        "doom_a3c's vector", (f"{RUNNERS}.this_raw",), learns=False, note="a process a core; grey, cropped, 84x84"
    ),
    "gymnasium_raw": System(
        "Gymnasium's AsyncVectorEnv",
        (f"{RUNNERS}.gymnasium_raw",),
        learns=False,
        note="ViZDoom's environment, grey, 160x120",
    ),
    "envpool_raw": System(
        "EnvPool",
        (f"{RUNNERS}.envpool_raw",),
        ("envpool",),
        "envpool",
        learns=False,
        optional=True,
        note="8 threads; colour, renders 320x240, resizes to 84x84",
    ),
}

VERSIONS = """
import importlib.metadata as metadata, json, sys
def version(name):
    try: return metadata.version(name)
    except metadata.PackageNotFoundError: return None
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


def read_versions(names: list[str], python: str | None) -> dict[str, str | None]:
    """Returns the version of each package that the systems need in the peers' environment.

    Raises:
        UserError: if there is no such environment, or it lacks a package of a system that must run.
    """
    packages = sorted({package for name in names for package in SYSTEMS[name].packages})
    if not packages:
        return {}
    if python is None:
        raise UserError("--peers-python is missing: give the Python of the requirements-peers.txt environment")
    try:
        answer = subprocess.run([python, "-c", VERSIONS, *packages], capture_output=True, text=True, check=True)
        found: dict[str, str | None] = json.loads(answer.stdout)
    except (OSError, subprocess.CalledProcessError, json.JSONDecodeError):
        raise UserError(f"--peers-python {python} is no Python that runs") from None
    needed = {package for name in names if not SYSTEMS[name].optional for package in SYSTEMS[name].packages}
    if lacking := sorted(package for package in needed if found[package] is None):
        raise UserError(f"--peers-python {python} lacks {', '.join(lacking)}: install benchmarks/requirements-peers.txt")
    return found
