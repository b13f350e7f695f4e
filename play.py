"""Shows what an agent can do: python play.py --model models/last.ckpt --out /tmp/result."""

import sys

from doom_a3c.cli.play import main

if __name__ == "__main__":
    sys.exit(main())
