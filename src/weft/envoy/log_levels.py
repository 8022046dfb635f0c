"""Log levels of an Envoy: parses what a user types (`rbac:debug,info`) and what Envoy's admin API answers."""

from __future__ import annotations

from typing import Any

from weft.base.suggest import did_you_mean
from weft.envoy.binary import EnvoyError
from weft.envoy.dump import text

ALL = "level"  # the name of all loggers together in Envoy's admin API
LEVELS = ("trace", "debug", "info", "warning", "error", "critical", "off")
_SHORT = {"warn": "warning", "none": "off"}


def parse(words: str) -> list[tuple[str, str]]:
    """Parse log levels as a user types them, such as `rbac:debug,info`. Return pairs of (logger, level) in the order in
    which to set them. A level for all loggers comes first, because it would overwrite the others. Raises EnvoyError."""
    pairs = []
    for word in words.split(","):
        # Some loggers were once written with a prefix or two colons, as in `envoy::rbac:debug` or `rbac::debug`.
        logger, _, level = word.strip().replace("=", ":").rpartition(":")
        logger = logger.rstrip(":").rpartition("::")[2]
        level = _SHORT.get(level, level)
        if level not in LEVELS:
            hint = did_you_mean(level, LEVELS) or f"use one of: {', '.join(LEVELS)}"
            raise EnvoyError(f"`{word}` has no valid log level", f"{hint}\nfor example: --level rbac:debug,info")
        pairs.append((logger or ALL, level))
    return sorted(pairs, key=lambda pair: pair[0] != ALL)


def check(pairs: list[tuple[str, str]], known: dict[str, str]) -> None:
    """Raise EnvoyError if a logger of `pairs` is not in `known`. Called before any level is set, so that a typing
    error does not leave half of the levels set."""
    for logger, _ in pairs:
        if logger != ALL and logger not in known:
            hint = did_you_mean(logger, known) or f"use one of Envoy's loggers: {', '.join(known)}"
            raise EnvoyError(f"Envoy has no logger `{logger}`", hint)


def started_with(server_info: dict[str, Any]) -> list[tuple[str, str]]:
    """Return pairs of (logger, level) that Envoy's command line sets, read from `server_info`, the response of
    /server_info."""
    options = server_info.get("command_line_options")
    components = [each.rpartition(":") for each in text(options, "component_log_level").split(",")]
    pairs = [(logger, level) for logger, _, level in components if logger]
    return [(ALL, text(options, "log_level") or "warning"), *pairs]


def read(answer: bytes) -> dict[str, str]:
    """Return the level of each logger, from the answer of Envoy's /logging: a heading, then a line ` LOGGER: LEVEL` for
    each logger."""
    lines = [line.strip().partition(": ") for line in answer.decode(errors="replace").splitlines()]
    return {logger: level for logger, _, level in lines if level}
