"""Findings about `exportTo` lists that name namespaces which do not exist. Without Namespace objects, every
namespace that contains an object counts as existing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.destination_rule import DestinationRule
from weft.model.names import Origin
from weft.model.service import Service
from weft.model.virtual_service import VirtualService

_SIGNS = (".", "*", "~")


def of_exports(facts: Facts) -> Iterator[Problem]:
    if not facts.runs:
        return
    namespaces = {*(facts.declared or facts.namespaces), *facts.runners, facts.settings.root_namespace}
    reported: set[tuple[Origin | None, str]] = set()  # the hosts of one ServiceEntry are one object
    exported: Iterable[Service | VirtualService | DestinationRule] = (
        *facts.services,
        *facts.virtual_services,
        *facts.rules,
    )
    for each in exported:
        for index, namespace in enumerate(each.export_to):
            if namespace in _SIGNS or namespace in namespaces or (each.origin, namespace) in reported:
                continue
            reported.add((each.origin, namespace))
            written = each.origin is not None and each.origin.key.kind == "Service"
            field = "metadata.annotations" if written else f"spec.exportTo[{index}]"
            what = f"there is no namespace {namespace}: this entry has no effect"
            yield finding("WFT0406", each.origin, field, what, did_you_mean(namespace, namespaces))
