"""Reads the Gateway API's BackendTLSPolicy: TLS to a Service, with the server name and the CA certificates to verify
the server."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.syntax import is_host
from weft.model.gateway_api import ISTIO_GROUP, BackendTls
from weft.model.names import service_host


def read_backend_tls_policy(root: Fields, meta: Meta) -> tuple[BackendTls, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    spec.refused("options", "weft supports no `options` of a BackendTLSPolicy", "remove them")
    validation = spec.fields("validation", required=True)
    server_name, names, system, bundles, others = (
        _validation(validation) if validation is not None else ("", (), False, (), ())
    )
    policies = []
    for item in spec.items("targetRefs", required=True):
        group, kind = item.text("group", most=253), item.text("kind", required=True, most=63)
        if kind and (group, kind) not in (("", "Service"), (ISTIO_GROUP, "ServiceEntry")):
            item.error(
                "kind",
                f"weft does not support a {kind} as the target of a BackendTLSPolicy",
                f'a Service (group: "") or a ServiceEntry (group: {ISTIO_GROUP}) can be a target',
            )
        service = item.text("name", required=True, most=253)
        policies.append(
            BackendTls(
                name=meta.name,
                namespace=meta.namespace,
                service=service,
                host=service_host(service, meta.namespace, meta.domain) if kind == "Service" else "",
                server_name=server_name,
                section=item.text("sectionName", most=253),
                subject_alt_names=names,
                system=system,
                bundles=bundles,
                other_kinds=others,
                created=meta.created,
                origin=meta.origin,
                target_kind=kind or "Service",
            )
        )
    return tuple(policies)


def _validation(fields: Fields) -> tuple[str, tuple[str, ...], bool, tuple[str, ...], tuple[str, ...]]:
    server_name = fields.checked("hostname", is_host, "a host name", required=True, most=253)
    names = []
    for item in fields.items("subjectAltNames"):
        kind = item.choice("type", ("Hostname", "URI"))
        if not kind:
            item.lacks("type", what="`type` is required", hint="Hostname or URI")
        field = "hostname" if kind == "Hostname" else "uri"
        if kind and not item.has(field):
            item.lacks(field, what=f"`type: {kind}` needs `{field}`")
        names.append(item.text(field, most=253))
        item.told_elsewhere("hostname", "uri")
    system = fields.choice("wellKnownCACertificates", ("System",)) == "System"
    bundles: list[str] = []
    others: list[str] = []  # kinds that weft does not support; the policy's status reports them
    for item in fields.items("caCertificateRefs"):
        group, kind = item.text("group", most=253), item.text("kind", required=True, most=63)
        name = item.text("name", required=True, most=253)
        if (group, kind) == ("", "ConfigMap"):
            bundles.append(name)
        elif kind:
            others.append(kind)
    if system and (bundles or others):
        fields.error(
            "caCertificateRefs",
            "`caCertificateRefs` cannot be combined with `wellKnownCACertificates`",
            "keep either `caCertificateRefs` or `wellKnownCACertificates`",
        )
    if not system and not bundles and not others:
        what = "`caCertificateRefs` or `wellKnownCACertificates` is required"
        fields.lacks("caCertificateRefs", "wellKnownCACertificates", what=what)
    return server_name, tuple(name for name in names if name), system, tuple(bundles), tuple(others)
