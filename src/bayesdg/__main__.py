"""`bayesdg` and `python -m bayesdg`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and leave with its exit code."""
    try:
        from bayesdg.cli import main as run
    except KeyboardInterrupt:  # before there is anybody to hear it
        print("bayesdg: stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(run())


if __name__ == "__main__":
    main()
