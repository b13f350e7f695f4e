"""A base for wrappers of this project's vectors of games."""

from __future__ import annotations

from typing import Any

from gymnasium.vector import VectorWrapper


class GamesWrapper(VectorWrapper[Any, Any, Any, Any, Any]):
    """A wrapper that passes on the methods that this project's vectors add to Gymnasium's, such as `release`."""

    def __getattr__(self, name: str) -> Any:
        """Returns the attribute of the wrapped vector."""
        if name == "env":  # not made yet
            raise AttributeError(name)
        return getattr(self.env, name)
