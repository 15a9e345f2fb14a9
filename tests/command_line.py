"""The commands of the command line, run in this process: the one place in which tests reach inside for them."""

from typing import Any

from click.shell_completion import BashComplete
from click.testing import CliRunner, Result

from tensorstash.cli.commands import commands

NAMES = sorted(commands.commands)
PROGRAM = "from tensorstash.__main__ import main; main()"


def invoke(*arguments: str) -> Result:
    """Run a command; an exception that it does not tell as an error is raised."""
    return CliRunner().invoke(commands, arguments, catch_exceptions=False)


def run(*arguments: str) -> str:
    """What a command that succeeds prints."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def parsed(command: str, *arguments: str) -> dict[str, Any]:
    """The parameters that a command would run with."""
    return commands.commands[command].make_context(command, [*arguments]).params


def completed(*words: str) -> list[tuple[str, str]]:
    """What a shell completes the last word with: texts, files or directories that begin so."""
    complete = BashComplete(commands, {}, "tensorstash", "_TENSORSTASH_COMPLETE")
    return [(item.type, item.value) for item in complete.get_completions([*words[:-1]], words[-1])]
