"""Gymnasium environments that give what cannot be learned from; importing this registers them."""

import gymnasium
from registered_toys import Numbers, Toy


class NanRewards(Toy):
    """Pays no number."""

    def step(self, action):
        seen, _, *rest = super().step(action)
        return seen, float("nan"), *rest


class HugeNumbers(Numbers):
    """Shows numbers of which a loss overflows."""

    def see(self):
        return super().see() + 1e30


class NoLevel(Toy):
    """Lacks a file, and says so when it is reset."""

    def reset(self, *, seed=None, options=None):
        raise RuntimeError("no level file\nand more")


for toy in (NanRewards, HugeNumbers, NoLevel):
    gymnasium.register(f"{toy.__name__}-v0", toy)
