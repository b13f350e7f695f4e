"""Command-line flags: one for each setting of some records."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from doom_a3c import __version__
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import hint, settings_of
from doom_a3c.settings.setting import Setting

_SHELLS = ("bash", "zsh", "tcsh")


class Parser(argparse.ArgumentParser):
    """An argument parser with one-line errors that suggest the nearest known flag."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError, where argparse would print the usage and exit."""
        raise UserError(message)

    def parse(self, arguments: list[str] | None) -> dict[str, Any]:
        """Returns the values of the flags on the command line, by setting; raises UserError for an unknown flag."""
        values, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            raise UserError(f"unknown argument {unknown[0]}{hint(unknown[0].split('=')[0], flags)}; --help lists all")
        return vars(values)


class _Completion(argparse.Action):
    """Prints the completion script of a shell, and exits."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option_string: Any = None) -> None:
        import shtab  # late: rarely needed

        print(shtab.complete(parser, shell=values))
        parser.exit()


def make_flag_parser(program: str, description: str, *records: type) -> Parser:
    """Makes a parser with one flag per setting of `records`; absent flags are left out of its result."""
    parser = Parser(
        prog=program,
        usage="%(prog)s [flags]",
        description=description,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--version", action="version", version=f"doom_a3c {__version__}")
    completion = "Print a script with which this shell completes the flags"
    parser.add_argument("--print-completion", action=_Completion, choices=_SHELLS, metavar="SHELL", help=completion)
    sections: dict[str, argparse._ArgumentGroup] = {}
    for one in (one for record in records for one in settings_of(record).values()):
        if one.section not in sections:
            sections[one.section] = parser.add_argument_group(one.section)
        _add(sections[one.section], one)
    return parser


def _add(section: argparse._ArgumentGroup, one: Setting) -> None:
    text = one.help.replace("%", "%%")
    if one.switch:
        section.add_argument(one.flag, dest=one.name, action="store_true", help=text)
    elif one.kind is bool:  # a flag may unset the value of a scenario
        section.add_argument(one.flag, dest=one.name, action=argparse.BooleanOptionalAction, help=text)
    else:
        metavar = one.kind.__name__.upper() if not one.choices else "NAME"
        count = "+" if one.many else "?" if one.bare else None
        bare = one.bare or None  # the value of the flag alone
        section.add_argument(one.flag, dest=one.name, type=one.kind, metavar=metavar, help=text, nargs=count, const=bare)
