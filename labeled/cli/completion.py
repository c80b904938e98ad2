"""``labeled completion``: what a shell needs to complete commands, options and files."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command(short_help="Print the script for completion in your shell.")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete `labeled`.

    \b
    bash:  labeled completion bash >> ~/.bashrc
    zsh:   labeled completion zsh >> ~/.zshrc
    fish:  labeled completion fish > ~/.config/fish/completions/labeled.fish
    """
    found = get_completion_class(shell)
    assert found is not None, "one of those that click has"
    click.echo(found(ctx.find_root().command, {}, "labeled", "_LABELED_COMPLETE").source())
