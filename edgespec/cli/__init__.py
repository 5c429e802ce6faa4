"""The command line: thin commands over the library, one file each."""

from __future__ import annotations

from typing import Any

import click

from edgespec import __version__
from edgespec.errors import EdgespecError

INTERRUPTED = 130


class Program(click.Group):
    """A group whose commands are imported when they are wanted, and whose errors are one sentence."""

    commands_by_name = ("chat", "run", "bench", "models")

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands_by_name)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self.commands_by_name:
            return None
        from importlib import import_module

        command: click.Command = import_module(f"edgespec.cli.{name}").command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo("\nedgespec: interrupted.", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            complain(ctx, error)
            ctx.exit(error.exit_code if isinstance(error, EdgespecError) else 1)


def complain(ctx: click.Context, error: Exception) -> None:
    """Say on stderr, in one sentence, what went wrong; with -v also where. Called while the error is handled."""
    if ctx.meta.get("edgespec.verbose"):
        import traceback

        traceback.print_exc()
    sentence = f"Something unexpected went wrong ({type(error).__name__}: {error}); -v shows where."
    if isinstance(error, EdgespecError):
        sentence = str(error)
    elif isinstance(error, OSError):
        sentence = f"The system refused something ({error}): look at the disk and at permissions."
    click.echo(f"edgespec: {sentence}", err=True)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", prog_name="edgespec")
def main() -> None:
    """Local language models answer faster, and say the same.

    A small draft model (or the text itself) guesses the next tokens; the large target model checks them all in one
    pass and keeps exactly what it would have said by itself.
    """
