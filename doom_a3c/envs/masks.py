"""Action masks of Gymnasium environments: finds them, and checks every mask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space
from numpy.typing import NDArray

from doom_a3c.settings.actions import list_choice_sizes, shorten
from doom_a3c.settings.errors import UserError

METHOD = "action_masks"  # of an environment or a wrapper, as in sb3-contrib
KEY = "action_mask"  # in infos, as in Gymnasium's Taxi
_CALL, _INFO = f"{METHOD}()", f"info[{KEY!r}]"
_ALWAYS = "return it from every reset() and step()"


class Unmasked:
    """Stands in for the masks of a game that has none, or whose actions cannot be masked."""

    def __init__(self, name: str, actions: Any, unused: str = "") -> None:
        """`unused` is the source of masks that are ignored."""
        self._name, self._actions = name, actions
        self.left_out = [f"{unused} ({type(actions).__name__} actions)"] if unused else []

    def read(self, info: Any, final: bool = False) -> None:
        """Raises UserError if there is a mask after all."""
        if _has_mask(info) and _can_be_masked(self._actions):
            raise UserError(f"{self._name}: an info has {KEY!r}, but the info of the first reset had none: {_ALWAYS}")

    def allows(self, action: Any) -> bool:
        return True

    def add_to(self, seen: Any) -> Any:
        return seen

    def add_to_space(self, space: Space[Any]) -> Space[Any]:
        return space


class Masks:
    """Reads the action masks of one game. Owns the newest.

    A mask has a place for each value of each choice: one for every action of a `Discrete` space, one for every value of
    each number of a `MultiDiscrete` one, and two for each button of a `MultiBinary` one, not pressed and pressed.
    """

    left_out: Sequence[str] = ()  # as for `Unmasked`

    def __init__(self, name: str, actions: Any, call: Callable[[], Any] | None) -> None:
        """`call` returns the game's masks; without it they are in the infos."""
        self._name, self._call = name, call
        self._sizes, self._expected = list_choice_sizes(actions), _describe_mask(actions)
        self._starts = np.cumsum([0, *self._sizes[:-1]])
        self._space = Box(0, 1, (sum(self._sizes),), np.uint8)
        self._newest = np.ones(self._space.shape, np.uint8)  # [A], 1 for allowed, in the order of the policy's logits

    def read(self, info: Any, final: bool = False) -> None:
        """Reads the mask of the newest observation, which came with `info`.

        The mask of an episode's `final` observation allows everything: no action follows it, and the game may have none.

        Raises:
            UserError: if the mask is missing, does not fit the actions, or leaves nothing to choose.
        """
        if final:
            self._newest = np.ones(self._space.shape, np.uint8)
            return
        mask = self._join(self._find(info) if self._call is None else self._call())
        allowed = mask.astype(np.bool_)
        if not (mask == allowed).all():
            raise self._refuse(f"contains {mask[mask != allowed][0]}", "return 1 for allowed and 0 for forbidden")
        possible = np.logical_or.reduceat(allowed, self._starts)
        if not possible.all():
            choice = int(np.argmin(possible))
            values = f"values of action[{choice}]" if len(possible) > 1 else "actions"
            cure = "allow at least one, or end the episode (terminated)"
            raise self._refuse(f"forbids all {self._sizes[choice]} {values}", cure)
        self._newest = allowed.astype(np.uint8)

    def allows(self, action: Any) -> bool:
        """Returns whether the newest mask allows an action; its values count from 0."""
        return bool(self._newest[self._starts + np.ravel(action)].all())

    def add_to(self, seen: Any) -> dict[str, Any]:
        """Returns an observation with its mask, as a dict of `pixels`, `variables` and `mask`."""
        return _add_mask(seen, self._newest)

    def add_to_space(self, space: Space[Any]) -> Space[Any]:
        """Returns an observation space with the masks."""
        return Dict(_add_mask(space, self._space))

    def _find(self, info: Any) -> Any:
        if _has_mask(info):
            return info[KEY]
        raise UserError(f"{self._name}: some infos have {KEY!r}, and this one has not: {_ALWAYS}")

    def _join(self, value: Any) -> NDArray[Any]:
        """Returns a mask in one dimension; a game may return it that way, or as one array per choice."""
        parts = [value] if isinstance(value, np.ndarray) and value.shape == self._space.shape else _split(value)
        if not parts:
            raise self._refuse(f"is of type {type(value).__name__}", self._expected)
        shapes = [part.shape for part in parts]
        if shapes not in ([self._space.shape], [(size,) for size in self._sizes], [()] * sum(self._sizes)):
            same = len(set(shapes)) == 1
            received = f"has the shape {(len(shapes), *shapes[0])}" if same else f"has parts of the shapes {shapes}"
            raise self._refuse(received, self._expected)
        mask = np.concatenate([np.atleast_1d(part) for part in parts])
        if mask.dtype.kind not in "biuf":
            raise self._refuse(f"contains {mask.dtype}", "return 1 for allowed and 0 for forbidden")
        return mask

    def _refuse(self, received: str, cure: str) -> UserError:
        return UserError(f"{self._name}: {_INFO if self._call is None else _CALL} {shorten(received)}: {shorten(cure)}")


def find_masks(name: str, env: gymnasium.Env[Any, Any], in_infos: bool | None) -> Masks | Unmasked:
    """Returns the reader of a game's masks; masks are left out unless the actions consist of choices alone.

    Args:
        name: the game's name in messages.
        env: the game.
        in_infos: whether its infos have masks, for a game without a method for them; None resets the game to find out.

    Raises:
        UserError: if `action_masks` is not a method.
    """
    actions, has_method = env.action_space, env.has_wrapper_attr(METHOD)
    if in_infos is None and not has_method:
        in_infos = _has_mask(env.reset(seed=0)[1])
    if not _can_be_masked(actions):
        return Unmasked(name, actions, _CALL if has_method else _INFO if in_infos else "")
    if has_method:
        call = env.get_wrapper_attr(METHOD)
        if callable(call):
            return Masks(name, actions, call)
        raise UserError(f"{name}: {METHOD} is of type {type(call).__name__}: make it a method that returns the mask")
    return Masks(name, actions, None) if in_infos else Unmasked(name, actions)


def _can_be_masked(actions: Any) -> bool:
    """Returns whether the actions of a space are choices that a mask can forbid."""
    return isinstance(actions, Discrete | MultiDiscrete | MultiBinary)


def _add_mask(seen: Any, mask: Any) -> dict[str, Any]:
    parts = seen if isinstance(seen, Mapping) else {"pixels" if seen.dtype == np.uint8 else "variables": seen}
    return {**parts, "mask": mask}


def _has_mask(info: Any) -> bool:
    return isinstance(info, (dict, Mapping)) and KEY in info  # `dict` first: it is checked faster


def _split(value: Any) -> list[NDArray[Any]]:
    """Returns the elements of a sequence as arrays, [] for anything else."""
    if isinstance(value, Mapping | str):
        return []
    try:
        return [np.asarray(part) for part in value]
    except (TypeError, ValueError):
        return []


def _describe_mask(actions: Discrete | MultiDiscrete | MultiBinary) -> str:
    """Returns in words which numbers a mask must have."""
    sizes = list_choice_sizes(actions)
    if isinstance(actions, Discrete):
        return f"return {sum(sizes)} numbers, one for each action"
    if isinstance(actions, MultiDiscrete):
        return f"return {sum(sizes)} numbers, one for each value of every action: {' + '.join(map(str, sizes))}"
    return f"return {sum(sizes)} numbers, not pressed and pressed for each of {len(sizes)} buttons"
