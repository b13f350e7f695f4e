"""Command-line flags: one for each setting of some records."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from doom_a3c import __version__
from doom_a3c.cli.mistakes import NO_OTHERS, Others, explain_seeds, explain_switch, explain_unknown
from doom_a3c.settings.errors import UserError, require
from doom_a3c.settings.fields import parse_setting, settings_of
from doom_a3c.settings.setting import Setting

_SHELLS = ("bash", "zsh", "tcsh")
Describe = Callable[[Mapping[str, Any]], Mapping[str, str]]
_WORDS = ("true", "false", "yes", "no", "on", "off")  # values that other programs' switches take


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors that suggest the flag that was meant."""

    def __init__(self, others: Others, **options: Any) -> None:
        super().__init__(add_help=False, **options)
        self._others = others
        self.add_argument("-h", "--help", action="store_true", help="Show this help and exit")
        self._negative_number_matcher = re.compile(r"-\.?\d")  # argparse's own takes -1e6 and -1k for flags

    def error(self, message: str) -> NoReturn:
        """Raises UserError, where argparse would print the usage and exit."""
        raise UserError(message)

    def parse(self, arguments: list[str] | None, describe: Describe = lambda values: {}) -> dict[str, Any]:
        """Returns the values of the flags on the command line, by setting; raises UserError for an unknown flag.

        --help exits; `describe` returns texts by setting that replace those of its help, given the other flags' values.
        """
        arguments = sys.argv[1:] if arguments is None else arguments
        self._check_switches(arguments)
        if several := explain_seeds(arguments, self.prog, self._option_string_actions):
            raise UserError(several)
        parsed, unknown = self.parse_known_args(arguments)
        values = vars(parsed)
        if values.pop("help", False):
            texts = describe(values)
            for action in self._actions:
                action.help = texts[action.dest].replace("%", "%%") if action.dest in texts else action.help
            self.print_help()
            self.exit()
        if unknown:
            raise UserError(explain_unknown(unknown, self._option_string_actions, self._others))
        return values

    def _check_switches(self, arguments: list[str]) -> None:
        """Raises UserError for a value after a flag that takes none."""
        for argument, following in itertools.pairwise([*arguments, ""]):
            flag, equals, value = argument.partition("=")
            action = self._option_string_actions.get(flag)
            if action and action.nargs == 0 and (equals or following.lower() in _WORDS):
                raise UserError(explain_switch(flag, value if equals else following, self._option_string_actions))


class _Completion(argparse.Action):
    """Prints the completion script of a shell, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab  # late: rarely needed

        print(shtab.complete(parser, shell=values))
        parser.exit()


def make_flag_parser(program: str, description: str, *records: type, others: Others = NO_OTHERS) -> Parser:
    """Makes a parser with one flag per setting of `records`; absent flags are left out of its result."""
    parser = Parser(
        others,
        prog=program,
        usage="%(prog)s [flags]",
        description=description,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"doom_a3c {__version__}")
    completion = "Print a script that lets this shell complete the flags"
    parser.add_argument("--print-completion", action=_Completion, choices=_SHELLS, metavar="SHELL", help=completion)
    sections: dict[str, argparse._ArgumentGroup] = {}
    for one in (one for record in records for one in settings_of(record).values()):
        if one.section not in sections:
            sections[one.section] = parser.add_argument_group(one.section)
        _add(sections[one.section], one)
    return parser


def list_flags(*records: type) -> frozenset[str]:
    """Returns the flags of all settings of some records."""
    return frozenset(one.flag for record in records for one in settings_of(record).values())


def _add(section: argparse._ArgumentGroup, one: Setting) -> None:
    text = one.help.replace("%", "%%")
    if one.switch:
        section.add_argument(one.flag, dest=one.name, action="store_true", help=text)
    elif one.kind is bool:  # a flag may unset the value of a scenario
        section.add_argument(one.flag, dest=one.name, action=argparse.BooleanOptionalAction, help=text)
    else:
        metavar = one.kind.__name__.upper() if not one.choices else "NAME"
        count = "+" if one.many else "?" if one.bare else None
        parse = functools.partial(parse_setting, dataclasses.replace(one, many=False), source="flags")
        section.add_argument(
            one.flag, dest=one.name, type=parse, metavar=metavar, help=text, nargs=count, const=one.bare or None
        )


def refuse_useless(flags: Sequence[str], why: str) -> None:
    """Raises UserError if there are flags; `why` says where they have no effect."""
    require(not flags, f"{', '.join(flags)} {'has' if len(flags) == 1 else 'have'} no effect {why}")
