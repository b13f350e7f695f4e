"""Runs a fork server with its trainer's import path: `python start_fork_server.py DESCRIPTOR ROOT BEGIN PATH...`."""

import sys

if __name__ == "__main__":
    sys.path[:] = sys.argv[4:]
    # Not earlier: only with the trainer's path is this the trainer's copy of the package.
    from doom_a3c.envs.processes.fork_server import main

    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
