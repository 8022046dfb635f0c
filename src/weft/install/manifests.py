"""All objects of one revision of weft, in the order in which they can be applied: referenced objects first, the
webhooks last, when the Service that they call exists."""

from __future__ import annotations

from typing import Any

import yaml

from weft.install import control, node
from weft.install.crds import crds
from weft.install.namespace import config_maps, namespace
from weft.install.rbac import roles
from weft.install.values import Values
from weft.install.webhooks import webhooks


def manifests(values: Values) -> list[dict[str, Any]]:
    return [
        namespace(values),
        *(crds() if values.crds else ()),
        control.service_account(values),
        node.service_account(values),
        *roles(values),
        *config_maps(values),
        control.service(values),
        control.budget(values),
        control.deployment(values),
        node.csi_driver(values),
        node.daemon_set(values),
        *webhooks(values),
    ]


def as_yaml(objects: list[dict[str, Any]]) -> str:
    """Return the objects as YAML, one document each, for reading and for `kubectl apply -f -`."""
    return yaml.dump_all(objects, Dumper=_Plain, sort_keys=False, width=120, explicit_start=True, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    """A YAML dumper that writes no anchors, and writes multi-line texts as block scalars."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Plain.add_representer(str, _text)
