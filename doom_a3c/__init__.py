"""doom_a3c: asynchronous advantage actor-critic agents for games seen as pixels.

    import doom_a3c as dc

    agent = dc.train("basic", minutes=1)
    agent.play("result", episodes=3)
    agent = dc.load(agent.source)

Importing this package loads next to nothing: TensorFlow is loaded on the first use of a name below. The import also
registers every scenario with Gymnasium, as `doom_a3c/Basic-v0` and so on.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from doom_a3c.api import (
        Agent,
        EvaluationPoint,
        Results,
        RunError,
        SavedCheckpoint,
        Status,
        UserError,
        load,
        resume,
        train,
    )
    from doom_a3c.envs.parallel import parallel_env as parallel_env

__version__ = "0.2.0"
__all__ = [
    "Agent",
    "EvaluationPoint",
    "Results",
    "RunError",
    "SavedCheckpoint",
    "Status",
    "UserError",
    "__version__",
    "load",
    "resume",
    "train",
]


with contextlib.suppress(ModuleNotFoundError):  # Gymnasium is missing: the command lines say how to install it
    from doom_a3c.envs.registry import register_all

    register_all()


def __getattr__(name: str) -> Any:
    if name == "parallel_env":
        from doom_a3c.envs import parallel  # late: it needs PettingZoo, but no TensorFlow

        return parallel.parallel_env
    if name not in __all__:
        from doom_a3c.settings.renames import describe_api_name  # late: rarely needed

        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{describe_api_name(name)}")
    try:
        from doom_a3c import api  # late: it loads TensorFlow
    except ModuleNotFoundError as error:
        if str(error.name).startswith("doom_a3c"):
            raise
        from doom_a3c.run.imports import describe_missing  # late: rarely needed

        raise ModuleNotFoundError(describe_missing(error), name=error.name) from None

    return getattr(api, name)


def __dir__() -> list[str]:
    return [*__all__, "parallel_env"]
