"""click commands for the commands that run inside pods. They pass their arguments on unparsed, and are hidden in the
help, because people do not type them. `weft.cli.start` usually runs the commands without click."""

from __future__ import annotations

import click
from click.exceptions import Exit

from weft.cli.pod.listed import IN_PODS, run


def _command(name: str) -> click.Command:
    settings = {"ignore_unknown_options": True, "allow_extra_args": True}

    @click.command(name, help=IN_PODS[name], hidden=True, add_help_option=False, context_settings=settings)
    @click.pass_context
    def in_pod(context: click.Context) -> None:
        raise Exit(run(name, context.args))

    return in_pod


iptables, redirect, drain, clean, wait = map(_command, ("iptables", "redirect", "drain", "clean", "wait"))
