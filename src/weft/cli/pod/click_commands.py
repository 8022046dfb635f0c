"""The commands that run inside pods, for click: usually they are started without it (`weft.cli.start`). They are
hidden, because nobody types them, and take their arguments as they come."""

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


iptables, redirect, drain, wait = map(_command, ("iptables", "redirect", "drain", "wait"))
