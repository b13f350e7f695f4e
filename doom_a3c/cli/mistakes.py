"""Explains arguments that a command does not know: flags of other programs, and words without a flag."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from doom_a3c.settings.catalog import find_users_file, list_scenario_files
from doom_a3c.settings.fields import hint
from doom_a3c.settings.numbers import parse_number
from doom_a3c.settings.renames import find_new_name, format_note

_SWITCHED = {**dict.fromkeys(("true", "yes", "on"), ""), **dict.fromkeys(("false", "no", "off"), "no-")}
_SEEDS = re.compile(r"--seed[ =](\d+(?: \d{1,4})+|\d+(?:,\d{1,2})+)(?= |$)")  # a longer second number means --frames
_VALUE = re.compile(r"-\.?\d")  # begins a negative number
_DEVICES = ("cpu", "gpu", "cuda", "auto")


class Others(NamedTuple):
    """The other command of the project, and its flags."""

    program: str
    flags: frozenset[str]


NO_OTHERS = Others("", frozenset())


def explain_switch(flag: str, value: str, flags: Collection[str]) -> str:
    """Returns the message for a flag that takes no value and has one."""
    off = f"--no-{flag[2:]}"
    return f"{flag} takes no value, such as {value}: {flag} alone turns it on" + (
        f", and {off} off" if off in flags else ""
    )


def explain_seeds(arguments: Sequence[str], program: str, flags: Collection[str]) -> str:
    """Returns the message for several seeds, '' if there is at most one."""
    if not (found := _SEEDS.search(" ".join(arguments))):
        return ""
    seeds = found[1].split() if " " in found[1] else found[1].split(",")
    if "--model" in flags:
        return f"--seed {found[1]}: it takes the first episode's seed, and each further episode adds 1: --seed {seeds[0]}"
    call = f"python {program}" if program.endswith(".py") else program
    loop = f"for seed in {' '.join(seeds)}; do {call} --seed $seed; done"
    return f"--seed {found[1]}: a run has one seed; a loop of the shell trains several: {loop}"


def explain_unknown(unknown: Sequence[str], flags: Collection[str], others: Others) -> str:
    """Returns the message for all unknown arguments of a command with these flags."""
    foreign, words, follows = [], [], False
    for argument in unknown:
        if argument.startswith("-") and not _VALUE.match(argument):
            foreign.append(argument + _explain_flag(argument.partition("=")[0], flags, others))
            follows = "=" not in argument  # the next word may be its value
        elif follows:
            follows = False
        else:
            words.append(argument)
    parts = [f"unknown argument{'s' * (len(foreign) > 1)} {'; '.join(foreign)}"] if foreign else []
    parts += [explain_words(words, flags, others)] if words else []
    return "; ".join([*parts, "--help lists all"])


def _explain_flag(flag: str, flags: Collection[str], others: Others) -> str:
    there = flag.replace("_", "-")
    return f": {others.program} has {there}" if there in others.flags else hint(flag, flags)


def explain_words(words: Sequence[str], flags: Collection[str], others: Others) -> str:
    """Returns which flags words without a flag need."""
    meant = [_guess_assignment(word, flags, others) if "=" in word else _guess(word, flags) for word in words]
    models = [word for word, one in zip(words, meant, strict=True) if one.startswith("--model ")]
    if len(models) > 1:
        meant = [one for one in meant if not one.startswith("--model ")] + [f"--compare {shlex.join(models)}"]
    once = [one for one in meant if one.startswith("--scenario ")][1:]
    extra = f" (a run plays one game: {', '.join(one.split()[1] for one in once)} needs its own)" if once else ""
    typed = " ".join(one for one in meant if one not in once)
    return f"{shlex.join(words)} {'needs a flag' if len(words) == 1 else 'need flags'}: {typed}{extra}"


def _guess(word: str, flags: Collection[str]) -> str:
    """Returns the flag and value that a word without a flag most likely stands for."""
    quoted = shlex.quote(word)
    if (flag := f"--{word.lower().strip('-').replace('_', '-')}") in flags:
        return flag
    if word.lower().partition(":")[0] in _DEVICES:
        return f"--device {quoted.lower().replace('cuda', 'gpu')}"
    if "--model" in flags:
        return f"--episodes {quoted}" if _parses(word, int, "") else f"--model {quoted}"
    if _parses(word, int, "") or _parses(word, float, "minutes"):
        return f"--{'frames' if _parses(word, int, '') else 'minutes'} {quoted}"
    if word.endswith(".ckpt"):
        return f"--from {quoted} (its weights; --resume continues its run)"
    return f"--scenario {shlex.quote(_correct(word, list_scenario_files()))}"


def _guess_assignment(word: str, flags: Collection[str], others: Others) -> str:
    """Returns the flag and value of an assignment such as learning_rate=1e-3, +training.gamma=0.9 or vtrace=false."""
    name, _, value = word.partition("=")
    flag = f"--{name.lstrip('+-').rpartition('.')[2].replace('_', '-')}"
    new = find_new_name(flag, flags)
    flag, note = (new.name, format_note(new)) if new else (flag, "")
    if flag not in flags:
        return f"{flag}{_explain_flag(flag, flags, others)}"
    switch = _SWITCHED.get(value.lower())
    if switch is not None and (switch == "" or f"--no-{flag[2:]}" in flags):
        return f"--{switch}{flag[2:]}{note}"
    return f"{flag} {shlex.quote(value)}{note}"


def _parses(word: str, kind: type, unit: str) -> bool:
    try:
        parse_number(word, kind, unit)
    except ValueError:
        return False
    return True


def _correct(word: str, known: Iterable[str]) -> str:
    """Returns the known scenario closest to a word, or the word itself if it is a file or an id, or no name is close."""
    if find_users_file(word) or re.search(r":|-v\d+$", word):
        return word
    names = {name.lower(): name for name in known}
    bare = re.sub(r"\.(wad|cfg|toml)$", "", word.lower())
    close = [] if bare in names else difflib.get_close_matches(bare, names, n=1, cutoff=0.75)
    return names[close[0]] if close else word
