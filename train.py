"""Trains an agent: python train.py --scenario basic.wad (python train.py --help lists all settings)."""

import sys

from doom_a3c.cli.train import main

if __name__ == "__main__":
    sys.exit(main())
