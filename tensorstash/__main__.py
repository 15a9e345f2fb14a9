"""`python -m tensorstash` is the command line."""

from tensorstash.cli.commands import main

if __name__ == "__main__":
    main()
