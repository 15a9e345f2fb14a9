"""`python -m tensorstash` is the command line."""

from tensorstash.cli import main

if __name__ == "__main__":
    main()
