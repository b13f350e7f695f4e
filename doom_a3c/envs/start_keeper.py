"""Runs a keeper with the modules that its trainer can import: `python start_keeper.py DESCRIPTOR ROOT BEGIN PATH...`."""

import sys

if __name__ == "__main__":
    sys.path[:] = sys.argv[4:]
    from doom_a3c.envs.keeper import main  # not before: it is the trainer's package, wherever that has been found

    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
