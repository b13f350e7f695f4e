"""Runs a module like `python -m`, but only until it has parsed its flags: only_parse.py MODULE [FLAG ...]."""

import runpy
import sys
from argparse import ArgumentParser

METHODS = {name: getattr(ArgumentParser, name) for name in ("parse_args", "parse_known_args")}


class Parsed(Exception):
    """The flags that the module knows are valid; holds the other flags."""


def replace(methods):
    for name, method in methods.items():
        setattr(ArgumentParser, name, method)


def parse_args(*arguments):
    replace(METHODS)
    ArgumentParser.parse_args(*arguments)
    raise Parsed([])


def parse_known_args(*arguments):
    replace(METHODS)
    raise Parsed(ArgumentParser.parse_known_args(*arguments)[1])


if __name__ == "__main__":
    replace({"parse_args": parse_args, "parse_known_args": parse_known_args})
    del sys.argv[0]
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except Parsed as parsed:
        (others,) = parsed.args
        if others:  # train.py would get them
            from doom_a3c.cli.train import main

            sys.exit(main([*others, "--print-settings"]))
    else:
        sys.exit(f"{sys.argv[0]} has parsed no flags")
