"""Reads the Gateway API's Gateway: its listeners, and which routes each listener allows. A setting that weft cannot
apply exactly is rejected; an unsupported protocol is reported in the conditions of its listener."""

from __future__ import annotations

from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.syntax import is_dns_label, is_host, is_hostname, is_object_name
from weft.model.gateway_api import (
    GROUP,
    AllowedNamespaces,
    CallersCheck,
    CertificateRef,
    From,
    LabelRequirement,
    Listener,
    RouteKind,
    StandardGateway,
)
from weft.model.names import Labels, labels_of

_STEERING = ("istio.io", "weft.dev", "gateway.networking.k8s.io")  # names that control weft or injection
_MODES = ("AllowValidOnly", "AllowInsecureFallback")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_TERMINATE_MODE = "gateway.istio.io/tls-terminate-mode"  # Istio's option of a listener's TLS
_TERMINATE_MODES = ("SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL")


def read_standard_gateway(root: Fields, meta: Meta) -> tuple[StandardGateway, ...]:
    spec = root.fields("spec", required=True)
    if spec is None:
        return ()
    what, hint = "weft does not support default Gateways", "name the Gateway in the `parentRefs` of routes"
    spec.refused("defaultScope", what, hint)
    listeners = read_listeners(spec, meta)
    labels, annotations = _infrastructure(spec)
    tls = spec.fields("tls")
    addresses = (_address(item) for item in spec.items("addresses"))
    return (
        StandardGateway(
            name=meta.name,
            namespace=meta.namespace,
            class_name=spec.text("gatewayClassName", required=True, most=253),
            listeners=listeners,
            addresses=tuple((kind, value) for kind, value in addresses if value),
            labels=labels,
            annotations=annotations,
            checks=_checks(tls, meta),
            client_certificate=_client_certificate(tls, meta),
            listener_sets=_namespaces(spec.fields("allowedListeners"), From.NONE),
            created=meta.created,
            origin=meta.origin,
        ),
    )


def read_listeners(spec: Fields, meta: Meta) -> tuple[Listener, ...]:
    """Read the `listeners` of a Gateway or a ListenerSet."""
    listeners = tuple(_listener(item, meta) for item in spec.items("listeners", required=True))
    names = [each.name for each in listeners]
    for index, name in enumerate(names):
        if name in names[:index]:
            spec.error(("listeners", index), f"two listeners are named `{name}`")
    return listeners


def _infrastructure(spec: Fields) -> tuple[Labels, Labels]:
    """Return (labels, annotations) for the objects that weft creates for a Gateway. Names that control the injector or
    weft itself are rejected: with them, any author of a Gateway could run any image."""
    fields = spec.fields("infrastructure")
    if fields is None:
        return (), ()
    hint = "remove `parametersRef`, and change the Deployment instead: weft does not overwrite your changes"
    fields.refused("parametersRef", "weft supports no parameters of a Gateway", hint)
    labels_and_annotations = fields.labels("labels"), labels_of(fields.string_map("annotations"))
    for name, pairs in zip(("labels", "annotations"), labels_and_annotations, strict=True):
        for key, _ in pairs:
            if key.partition("/")[0].endswith(_STEERING):
                fields.error((name, key), f"`{key[:80]}` cannot be set by a Gateway", "set it in the Deployment")
    return labels_and_annotations


def _client_certificate(tls: Fields | None, meta: Meta) -> CertificateRef | None:
    backend = tls.fields("backend") if tls is not None else None
    reference = backend.fields("clientCertificateRef") if backend is not None else None
    return _certificate(reference, meta) if reference is not None else None


def _checks(tls: Fields | None, meta: Meta) -> tuple[CallersCheck, ...]:
    if tls is None:
        return ()
    frontend = tls.fields("frontend")
    if frontend is None:
        return ()
    default = frontend.fields("default", required=True)
    checks = [_check(default, meta, 0)] if default is not None else []
    for item in frontend.items("perPort"):
        port, fields = item.port("port", required=True), item.fields("tls", required=True)
        if any(each.port == port for each in checks):
            item.error("port", f"port {port} is listed twice")
        if fields is not None:
            checks.append(_check(fields, meta, port))
    return tuple(checks)


def _check(fields: Fields, meta: Meta, port: int) -> CallersCheck:
    validation = fields.fields("validation")
    if validation is None:
        return CallersCheck(port, ())
    insecure = validation.choice("mode", _MODES, default=_MODES[0]) != _MODES[0]
    references = tuple(_certificate(each, meta) for each in validation.items("caCertificateRefs", required=True))
    return CallersCheck(port, references, insecure)


def _address(item: Fields) -> tuple[str, str]:
    """Read `item`, an entry of a Gateway's `addresses`, and return (type, value). An empty value means that weft
    assigns the address. As in Istio, the only value that weft supports is the host name of a Service in front of
    existing proxies; any other value is an error."""
    kind, value = item.text("type", default="IPAddress", most=253), item.text("value", most=253)
    if not value and kind in ("IPAddress", "Hostname"):
        return kind, ""
    if kind != "Hostname":
        what = f"weft does not support addresses of type {kind} for a Gateway"
        item.error(
            "type", what, "use `Hostname` with the host of the Service in front of your own proxies, or no address"
        )
    elif not is_host(value):
        item.error(
            "value", f"`{value}` is not a host name", "use the host of the Service in front of the Gateway's proxies"
        )
    return kind, value


def _listener(item: Fields, meta: Meta) -> Listener:
    hint = "use lower-case letters, digits and -"
    name = item.checked("name", is_host, "a name for a listener", hint, required=True, most=253)
    protocol = item.text("protocol", required=True, most=255)
    hint = "write a name or `*.example.com`, or leave `hostname` out"
    hostname = item.checked("hostname", is_hostname, "a host name", hint, most=253).lower()
    if hostname and protocol == "TCP":
        item.error("hostname", "a TCP listener cannot have a `hostname`: TCP has no host names", "remove `hostname`")
    passthrough, certificates, client_certificates = _tls(item, meta, protocol)
    namespaces, kinds, others = _allowed(item)
    return Listener(
        name=name,
        port=item.port("port", required=True),
        protocol=protocol,
        hostname=hostname,
        passthrough=passthrough,
        client_certificates=client_certificates,
        certificates=certificates,
        namespaces=namespaces,
        kinds=kinds,
        other_kinds=others,
        line=item.line,
    )


def _tls(item: Fields, meta: Meta, protocol: str) -> tuple[bool, tuple[CertificateRef, ...], str]:
    """Read the `tls` of a listener with this protocol. Return (passthrough, certificates, client certificates): whether
    TLS is forwarded without being terminated; the listener's certificates, () with passthrough; and whether clients
    must present certificates, as `_client_certificates` returns it."""
    fields = item.fields("tls")
    if fields is None:
        if protocol in ("HTTPS", "TLS"):
            item.lacks("tls", what=f"a listener with the protocol {protocol} needs `tls`")
        return False, (), ""
    what = "weft does not support `frontendValidation` of a listener"
    fields.refused("frontendValidation", what, "use an Istio Gateway with `mode: MUTUAL`")
    if protocol not in ("HTTPS", "TLS"):
        what = f"a listener with {f'the protocol {protocol}' if protocol else 'no protocol'} cannot have `tls`"
        item.error("tls", what, "set `protocol: HTTPS` or `TLS`")
    passthrough = fields.choice("mode", ("Terminate", "Passthrough"), default="Terminate") == "Passthrough"
    if passthrough and protocol == "HTTPS":
        what = "a listener with the protocol HTTPS terminates TLS, so its mode cannot be Passthrough"
        fields.error("mode", what, "to pass TLS through, set `protocol: TLS`")
    certificates = tuple(_certificate(each, meta) for each in fields.items("certificateRefs"))
    if not passthrough and not certificates:
        fields.lacks("certificateRefs", what="`certificateRefs` is required where TLS is terminated")
    return passthrough, () if passthrough else certificates, _client_certificates(fields, passthrough=passthrough)


def _client_certificates(fields: Fields, *, passthrough: bool) -> str:
    """Read, from the `options` of a listener's TLS, Istio's option for mutual TLS. Return MUTUAL (clients need a
    certificate), OPTIONAL_MUTUAL (a client may present one), or "" (none is requested). Every other option is an error.
    `passthrough`: TLS is not terminated, so that this option is an error, too."""
    options = fields.string_map("options")
    for name in options:
        if name != _TERMINATE_MODE:
            what = f"weft does not support the option `{name[:80]}` of a listener's TLS"
            fields.error(("options", name), what, f"remove it; {_TERMINATE_MODE} is supported")
    mode = options.get(_TERMINATE_MODE, "")
    if mode and (passthrough or mode not in _TERMINATE_MODES):
        what = "TLS is passed through, not terminated" if passthrough else f"`{mode[:80]}` is not supported"
        fields.error(("options", _TERMINATE_MODE), what, f"write {' or '.join(_TERMINATE_MODES)}, with mode Terminate")
        return ""
    return mode if mode != "SIMPLE" else ""


def _certificate(item: Fields, meta: Meta) -> CertificateRef:
    hint = "use lower-case letters, digits, - and ."
    return CertificateRef(
        item.checked("namespace", is_dns_label, "a namespace", default=meta.namespace, most=63),
        item.checked("name", is_object_name, "the name of a Secret", hint, required=True, most=253),
        item.text("group", most=253),
        item.text("kind", default="Secret", most=63),
    )


def _namespaces(fields: Fields | None, default: From) -> AllowedNamespaces:
    """Read the `namespaces` of `fields`, an `allowedRoutes` or `allowedListeners`. `default`: the value of `from`."""
    namespaces = fields.fields("namespaces") if fields is not None else None
    if namespaces is None:
        return AllowedNamespaces(default)
    source = From(namespaces.choice("from", [each.value for each in From], default=default.value))
    chosen = namespaces.fields("selector")
    if chosen is None:
        if source is From.SELECTOR:
            namespaces.lacks("selector", what="`from: Selector` needs a `selector`")
        return AllowedNamespaces(source)
    requirements = tuple(_requirement(each) for each in chosen.items("matchExpressions"))
    return AllowedNamespaces(source, chosen.labels("matchLabels"), requirements)


def _allowed(item: Fields) -> tuple[AllowedNamespaces, tuple[str, ...], tuple[str, ...]]:
    """Read the `allowedRoutes` of a listener. Return (namespaces, kinds, other kinds): the allowed namespaces, and the
    allowed kinds of routes, with those that weft does not support apart."""
    fields = item.fields("allowedRoutes")
    if fields is None:
        return AllowedNamespaces(), (), ()
    namespaces = _namespaces(fields, From.SAME)
    kinds: list[str] = []
    others: list[str] = []
    for each in fields.items("kinds"):
        group, kind = each.text("group", default=GROUP, most=253), each.text("kind", required=True, most=63)
        known = group == GROUP and kind in set(RouteKind)
        (kinds if known else others).append(kind)
    return namespaces, tuple(kinds), tuple(others)


def _requirement(item: Fields) -> LabelRequirement:
    operator = item.choice("operator", _OPERATORS, default="")
    if not operator:
        item.lacks(
            "operator", what="`operator` is required", hint=f"write {', '.join(_OPERATORS[:-1])} or {_OPERATORS[-1]}"
        )
    return LabelRequirement(item.text("key", required=True, most=317), operator, item.texts("values", most=63))
