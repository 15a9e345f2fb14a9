"""The directive `commands`: a section for each command of the command line, with what its `--help` prints."""

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

WIDTH = 88


class Commands(SphinxDirective):
    """The help of all commands, by name; its content is what one types where the page is read in the repository."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The sections."""
        from tensorstash.cli.commands import commands

        return [self._section(name, command) for name, command in sorted(commands.commands.items())]

    def _section(self, name: str, command: click.Command) -> nodes.Node:
        section = nodes.section(ids=[f"command-{name}"], names=[name])
        with click.Context(command, info_name=f"tensorstash {name}", terminal_width=WIDTH) as context:
            context.help_option_names = ["-h", "--help"]
            text = command.get_help(context)
        section += [nodes.title(text=name), nodes.literal_block(text, text, language="text")]
        self.state.document.note_explicit_target(section)
        return section
