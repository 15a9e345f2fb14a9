"""`python -m tensorstash`, and the command `tensorstash`, are the command line."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C during its start ends it quietly."""
    try:
        from tensorstash.cli.commands import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)  # as shells report SIGINT


if __name__ == "__main__":
    main()
