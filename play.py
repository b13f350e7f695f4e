"""Shows what an agent can do: python play.py --model models/last.ckpt --out /tmp/result."""

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C during the imports just ends the program

from doom_a3c.cli import command  # noqa: E402  # so the line above comes first

try:
    from doom_a3c.cli.play import main
except ModuleNotFoundError as error:
    sys.exit(command.report_missing_package("play.py", error))

if __name__ == "__main__":
    sys.exit(main())
