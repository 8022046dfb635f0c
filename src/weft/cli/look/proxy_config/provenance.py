"""`weft proxy-config … --why`: adds to each row the objects and rules behind the row, queried from the control plane
(`weft.inspect.ask.why`). The rules are weft's own (`weft.inspect.reasons.rules`): defaults, and the precedence between
objects. A resource that the control plane did not send is part of the proxy's bootstrap."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weft.cli.print.output import fail

if TYPE_CHECKING:
    from weft.cli.look.proxy_config.source import ProxySource

_ENDPOINT = re.compile(r"endpoints\[\d+\]\.lb_endpoints\[(.+)\]")


class Provenance:
    """The objects and rules behind a proxy's resources, for the kinds of resources that the control plane was queried
    for."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self._parts: dict[str, list[dict[str, Any]]] = {}
        self._words: dict[tuple[str, str], str] = {}
        for answer in answers:  # if several resources have the same name, the last one wins
            name = answer["name"]
            self._parts[name] = answer["parts"]
            for part in answer["parts"]:
                line = words(part)
                self._words[name, part["at"]] = line
                if endpoint := _ENDPOINT.fullmatch(part["path"]):
                    self._words[name, endpoint[1]] = line

    def words(self, name: str, at: str = "") -> str:
        """Return, as one line, the objects and rules behind the part `at` of the resource `name`. If nothing is
        known about that part, return those of the whole resource; if nothing is known about the resource, return
        that it is part of the bootstrap."""
        return (
            self._words.get((name, at))
            or self._words.get((name, ""))
            or words({"sources": [], "rules": [_bootstrap()]})
        )

    def parts(self, name: str) -> list[dict[str, Any]]:
        """Return all parts of a resource with the objects and rules behind them."""
        return self._parts.get(name) or [{"path": "", "at": "", "sources": [], "rules": [_bootstrap()]}]

    def beside(self, resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return copies of the resources, each with a key `why`: the list of its parts, with the objects and rules
        behind each part."""
        return [{**each, "why": self.parts(str(each.get("name", "")))} for each in resources]


def provenance(source: ProxySource, *kinds: str) -> Provenance:
    """Query the control plane for the provenance of resources of these kinds. If the source is a file, the command
    ends: a config dump does not contain the provenance."""
    import msgspec

    if source.file is not None:
        what = "a dump contains Envoy's config, but not the objects behind it; only a control plane has those"
        fail(what, "leave out --why, or name a pod instead of --file", code=2)
    answers: list[dict[str, Any]] = []
    for kind in kinds:
        question: dict[str, Any] = {"proxy": str(source.proxy), "kind": kind}
        if source.called is not None:
            question["called"] = source.called
        page = source.reach.ask("why", {"question": msgspec.json.encode(question).decode()})
        answers += msgspec.json.decode(page)
    return Provenance(answers)


def words(part: Mapping[str, Any]) -> str:
    """Return one line with the objects behind a part of a resource, and the names of the rules."""
    rules = ", ".join(rule["name"] for rule in part["rules"])
    if not part["sources"]:
        return f"default: {rules}"
    return "; ".join(part["sources"]) + (f" [{rules}]" if rules else "")


def _bootstrap() -> dict[str, Any]:
    import msgspec

    from weft.inspect.reasons.rules import BOOTSTRAP

    rule: dict[str, Any] = msgspec.to_builtins(BOOTSTRAP)
    return rule
