"""Command-line flags: one for each setting of some records."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from doom_a3c.settings.fields import UserError, nearest, settings_of


class Parser(argparse.ArgumentParser):
    """An argument parser whose complaints are one line, with the nearest known flag."""

    def error(self, message: str) -> NoReturn:
        """Raises UserError, where argparse would print the usage and exit."""
        raise UserError(message)

    def parse(self, arguments: list[str] | None) -> dict[str, Any]:
        """Returns the given flags alone, by setting name; raises UserError for one that does not exist."""
        values, unknown = self.parse_known_args(arguments)
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            raise UserError(f"unknown argument {unknown[0]}{nearest(unknown[0].split('=')[0], flags)}; --help lists all")
        return vars(values)


def flag_parser(program: str, description: str, *records: type) -> Parser:
    """Returns a parser with one flag per setting of `records`; flags that are not given stay out of its result."""
    parser = Parser(prog=program, description=description, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    for one in (one for record in records for one in settings_of(record).values()):
        text = one.help.replace("%", "%%")
        if one.kind is bool:
            parser.add_argument(one.flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            metavar = one.kind.__name__.upper() if not one.choices else "NAME"
            parser.add_argument(one.flag, type=one.kind, metavar=metavar, help=text)
    return parser
