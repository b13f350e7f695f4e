"""Mutations that know the structure of their input: trees of plain data, text, checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 4, 5, 255, 65536, 2**53 + 1, 10**30, 10**400),
    *(2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, -(2**63)),
    *(0.5, -0.0, 1e-320, 1e38, 1e39, 1e308, math.nan, math.inf, -math.inf),
)
WORDS = (
    *("", " ", "\0", "\n", "\r\n", "\x1b[2J", "\x7f", "\u202e", "\ud800", "\U0001f600", "é", "ﬁ", "İ"),
    *("%s%n", "{0.__class__}", "__class__", "__init__", "A" * 300, "A" * 20_000, "9" * 5000, "[" * 500),
    *("nan", "inf", "-1", "1e999", "0x10", "1_0", "true", "None"),
    *("..", "../../../../etc/passwd", "/etc/shadow", "/dev/zero", "/dev/stdin", "/proc/self/mem", "~root/x", "folder"),
    *("$(touch escaped)", "; touch escaped", "| touch escaped", "`touch escaped`", "__import__('os').abort()"),
    *("antigravity:Name-v0", "os:system-v0", "CartPole-v1", "ALE/Pong-v5", "ALE/../Pong-v5", "basic", "basic.cfg"),
    *("vizdoom_path", "doom_game_path", "doom_scenario_path", "doom_config_path", "game_args", "/bin/sh", "+exec escaped"),
    *("lstm", "skip_lstm", "none", "gru", "elu", "single", "combinations", "RES_160X120"),
    *("gpu:1", "gpu:" + "9" * 20, "localhost:1"),
    *("render_mode", "human", "map01", "base/doom", "base/gymnasium", "basic.wad", "faults", "format"),
)
EMPTY: tuple[Any, ...] = (None, True, False, [], {})


class Mutator:
    """Mutates inputs. Owns a random stream; `words` are the names that the inputs' readers know."""

    def __init__(self, seed: int, words: Sequence[str] = ()) -> None:
        self._random, self._words = random.Random(seed), words

    def chance(self, probability: float) -> bool:
        """Returns True with the given probability."""
        return self._random.random() < probability

    def word(self) -> str:
        """Returns a string that readers may stumble over, or one that they know."""
        return self._random.choice(self._words if self._words and self.chance(0.5) else WORDS)

    def value(self) -> Any:
        """Returns a value that readers may stumble over."""
        kind = self._random.random()
        if kind < 0.4:
            return self._random.choice(NUMBERS)
        if kind < 0.6:
            return self._random.choice(EMPTY)
        if kind < 0.9:
            return self.word()
        return self._nest(self.word())

    def tree(self, tree: Any) -> Any:
        """Returns a copy of a tree of plain data with one to four changes."""
        for _ in range(self._random.choice((1, 1, 1, 2, 2, 4))):
            tree = self._change(tree)
        return tree

    def _change(self, tree: Any) -> Any:
        """Returns a copy with one change, somewhere."""
        if isinstance(tree, dict) and tree and self.chance(0.95):
            return self._change_table(tree)
        if isinstance(tree, list) and tree and self.chance(0.85):
            return self._change_list(tree)
        if isinstance(tree, str) and self.chance(0.5):
            return self.text(tree)
        if isinstance(tree, int | float) and not isinstance(tree, bool) and self.chance(0.5):
            return self._change_number(tree)
        return self._nest(tree) if self.chance(0.1) else self.value()

    def _change_table(self, table: dict[str, Any]) -> dict[str, Any]:
        key, action = self._random.choice(list(table)), self._random.random()
        if action < 0.8:
            return {**table, key: self._change(table[key])}
        if action < 0.87:
            return {**table, self.word(): self.value()}
        others = {name: value for name, value in table.items() if name != key}
        return others if action < 0.94 else {**others, self.word(): table[key]}

    def _change_list(self, items: list[Any]) -> list[Any]:
        index = self._random.randrange(len(items))
        before, after = items[:index], items[index + 1 :]
        action = self._random.random()
        if action < 0.7:
            return [*before, self._change(items[index]), *after]
        if action < 0.8:
            return before + after
        if action < 0.9:
            return [*items, self.value()]
        return (items * self._random.choice((2, 3, 50)))[:2000]

    def _change_number(self, number: float) -> Any:
        if self.chance(0.3):
            return str(number)
        try:
            return self._random.choice((number + 1, number - 1, -number, number * 1000, float(number), number * 0.5))
        except OverflowError:
            return -number

    def _nest(self, value: Any) -> Any:
        for _ in range(self._random.choice((1, 2, 10, 150))):
            value = [value] if self.chance(0.5) else {self.word(): value}
        return value

    def text(self, text: str) -> str:
        """Returns a text with something inserted, removed, repeated or replaced."""
        start, stop = sorted(self._random.randint(0, len(text)) for _ in range(2))
        stop = min(stop, start + self._random.choice((0, 1, 2, 8, 200)))
        piece = self._random.choice((self.word(), "", chr(self._random.randrange(0xD800)), text[start:stop] * 3))
        return text[:start] + piece + text[stop:]

    def line(self, text: str) -> str:
        """Returns a text with one of its lines changed, removed, doubled or moved."""
        lines = text.split("\n")
        index = self._random.randrange(len(lines))
        others, action = lines[:index] + lines[index + 1 :], self._random.random()
        if action < 0.6:
            return "\n".join([*lines[:index], self.text(lines[index]), *lines[index + 1 :]])
        if action < 0.8:
            return "\n".join(others)
        others.insert(self._random.randint(0, len(others)), lines[index])
        return "\n".join(others if action < 0.9 else [*others, lines[index]])

    def damage(self, data: bytes) -> bytes:
        """Returns bytes with a few of them changed, removed or added."""
        changed = bytearray(data)
        for _ in range(self._random.choice((1, 1, 2, 8))):
            where = self._random.randint(0, len(changed))
            if self.chance(0.6) and where < len(changed):
                changed[where] = self._random.choice((0, 1, 127, 128, 255, self._random.randrange(256)))
            elif self.chance(0.5):
                del changed[where : where + self._random.choice((1, 4, 100))]
            else:
                changed[where:where] = self._random.randbytes(self._random.choice((1, 4, 8)))
        return bytes(changed)

    def checkpoint(self, data: bytes) -> bytes:
        """Returns a checkpoint with a change to its header, to the record in it, to its arrays, or anywhere."""
        action = self._random.random()
        try:
            header, arrays = split_checkpoint(data)
        except (ValueError, RecursionError):
            return self.damage(data)
        if action < 0.5:
            with contextlib.suppress(ValueError, RecursionError, KeyError, TypeError):
                record = json.dumps(self.tree(json.loads(header["__metadata__"]["record"])))
                return join_checkpoint({**header, "__metadata__": {**header["__metadata__"], "record": record}}, arrays)
        if action < 0.8:
            with contextlib.suppress(ValueError, RecursionError):
                return join_checkpoint(self.tree(header), arrays)
        return join_checkpoint(header, self.damage(arrays)) if action < 0.9 else self.damage(data)


def mutate_json(data: bytes, change: Callable[[Any], Any]) -> bytes | None:
    """Returns JSON with a change to its data, None if it cannot be read or written."""
    try:
        return json.dumps(change(json.loads(data))).encode()
    except (ValueError, RecursionError):
        return None


def split_checkpoint(data: bytes) -> tuple[Any, bytes]:
    """Returns the header of a checkpoint, as plain data, and the bytes after it; raises ValueError if there is none."""
    end = 8 + int.from_bytes(data[:8], "little")
    return json.loads(data[8:end]), data[end:]


def join_checkpoint(header: Any, arrays: bytes = b"") -> bytes:
    """Returns a checkpoint of a header, as plain data or JSON, and the bytes after it; may raise ValueError."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + arrays


def write_toml(table: Any) -> str:
    """Returns a table as TOML; still writes values that TOML cannot express, for the parser to reject."""
    if not isinstance(table, dict):
        return _toml_value(table)
    lines = [f"{_toml_key(key)} = {_toml_value(value)}" for key, value in table.items() if not isinstance(value, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [f"[{_toml_key(key)}]", *(f"{_toml_key(name)} = {_toml_value(its)}" for name, its in value.items())]
    return "\n".join(lines) + "\n"


def _toml_key(key: str) -> str:
    return key if key.isidentifier() and key.isascii() else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_key(key)} = {_toml_value(its)}" for key, its in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return json.dumps(value)
    return repr(value) if abs(value) < 10**300 or isinstance(value, float) else hex(value)
