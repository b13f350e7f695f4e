"""Trains an agent: python train.py --scenario basic.wad (python train.py --help lists all settings)."""

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports just ends the program

from doom_a3c.cli import command  # noqa: E402  # so the line above comes first

try:
    from doom_a3c.cli.train import main
except ModuleNotFoundError as error:
    sys.exit(command.report_missing_package("train.py", error))

if __name__ == "__main__":
    sys.exit(main())
