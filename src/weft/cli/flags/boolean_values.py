"""Boolean flags with a value, as istioctl accepts them: `--verbose=false`. click's flags take no value, so the value is
removed before click parses the arguments: `--verbose=true` becomes `--verbose`. `--verbose=false` becomes the flag's
negative form (here `--brief`), or is dropped if the flag has none.

Rule: only plain boolean values are removed. Any other value is left to click, which reports it.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

_BOOLEANS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}  # as in Go


def without_values(command: click.Command, context: click.Context, arguments: Sequence[str]) -> list[str]:
    """Return the arguments of `command` with the values of its boolean flags removed. Arguments after `--`, and
    arguments of a program that the command starts, are unchanged."""
    flags = {
        name: each
        for each in command.get_params(context)
        if isinstance(each, click.Option) and each.is_flag
        for name in each.opts
    }
    interspersed = command.context_settings.get("allow_interspersed_args", command.allow_interspersed_args)
    plain: list[str] = []
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if argument == "--" or not (argument.startswith("-") or interspersed):
            return [*plain, *arguments[number:]]
        if not equals or name not in flags or value.lower() not in _BOOLEANS:
            plain.append(argument)
            continue
        flag, names = flags[name], (*flags[name].opts, *flags[name].secondary_opts)
        plain = [each for each in plain if each not in names]  # the last occurrence wins
        plain += [name] if _BOOLEANS[value.lower()] else flag.secondary_opts[:1]
    return plain
