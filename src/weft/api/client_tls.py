"""Reads the `tls` of a DestinationRule: the TLS of connections to its host. A setting that cannot be applied as
written is rejected, and calls for which a rejected rule configures TLS fail: they must not fall back to weaker
settings."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from weft.api.metadata import Meta
from weft.api.proxy_file import proxy_file
from weft.api.reader import Fields, quoted
from weft.api.syntax import is_host, is_object_name
from weft.model.destination_rule import ClientTls, ClientTlsMode, DestinationRule, TrafficPolicy, levels
from weft.model.value import Value

_MODES = tuple(mode.value for mode in ClientTlsMode if mode is not ClientTlsMode.CLOSED)
_FILES = ("clientCertificate", "privateKey", "caCertificates", "caCrl")
_FIELDS = (*_FILES, "credentialName", "subjectAltNames", "sni", "insecureSkipVerify")
_CLOSED = ClientTls(ClientTlsMode.CLOSED)
# The fields that each mode uses. Any other field would have no effect, and is an error.
_READ = {
    "DISABLE": (),
    "SIMPLE": ("caCertificates", "caCrl", "credentialName", "subjectAltNames", "sni", "insecureSkipVerify"),
    "MUTUAL": _FIELDS,
    "ISTIO_MUTUAL": ("subjectAltNames", "sni"),
}


def read_client_tls(policy: Fields) -> ClientTls | None:
    tls = policy.fields("tls")
    if tls is None:
        return _CLOSED if policy.has("tls") else None
    tls.told_elsewhere(*_FIELDS)
    mode = tls.choice("mode", _MODES) or ("" if tls.has("mode") else "DISABLE")
    if not mode:
        return _CLOSED
    idle = [name for name in _FIELDS if tls.has(name) and name not in _READ[mode]]
    if idle:
        what = f"{quoted(idle)} would have no effect, since `mode` is {mode if tls.has('mode') else 'missing'}"
        tls.error(
            idle[0], what, "set `mode`" if mode == "DISABLE" else f"leave out {quoted(idle)}, or set another `mode`"
        )
        if not tls.has("mode"):
            return _CLOSED
    found = ClientTls(
        mode=ClientTlsMode(mode),
        server_name=_server_name(tls),
        subject_alt_names=tls.texts("subjectAltNames"),
        certificate=proxy_file(tls, "clientCertificate"),
        private_key=proxy_file(tls, "privateKey"),
        authorities=proxy_file(tls, "caCertificates"),
        revoked=proxy_file(tls, "caCrl"),
        verify=not tls.boolean("insecureSkipVerify"),
        credential=tls.text("credentialName", most=253),
    )
    _check_credential(tls)
    _check_files(tls, found)
    return found


def closed_rule(values: Sequence[Value], meta: Meta) -> tuple[Value, ...]:
    """Return the rule that replaces a rejected rule: calls for which the rejected rule configures TLS fail. `values`:
    what could be parsed of the rejected rule. The result is empty for a rejected rule without TLS. `meta`: the metadata
    of the rejected rule."""
    del meta
    return tuple(
        msgspec.structs.replace(
            value,
            policy=_closed(value.policy),
            subsets=tuple(msgspec.structs.replace(each, policy=_closed(each.policy)) for each in value.subsets),
        )
        for value in values
        if isinstance(value, DestinationRule) and value.host and _asks_for_tls(value)
    )


def _asks_for_tls(rule: DestinationRule) -> bool:
    return any(level.tls is not None and level.tls.mode is not ClientTlsMode.DISABLE for level in levels(rule))


def _closed(policy: TrafficPolicy | None) -> TrafficPolicy | None:
    if policy is None:
        return None
    tls = policy.tls if policy.tls is None or policy.tls.mode is ClientTlsMode.DISABLE else _CLOSED
    ports = ((number, _closed(entry) or TrafficPolicy()) for number, entry in policy.ports)
    return TrafficPolicy(tls=tls, ports=tuple(ports))


def _server_name(tls: Fields) -> str:
    # The mesh's own server names contain underscores.
    return tls.checked("sni", lambda name: is_host(name.replace("_", "a")), "a name for `sni`", "use a host name")


def _check_credential(tls: Fields) -> None:
    """Report an error in `tls` for each certificate file beside `credentialName`, which replaces all of these files."""
    hint = "write the name, without a namespace, of a Secret in the proxy's own namespace"
    tls.checked("credentialName", is_object_name, "the name of a Secret", hint, most=253)
    beside = [each for each in _FILES if tls.has(each)] if tls.has("credentialName") else []
    if beside:
        tls.error(
            beside[0],
            f"{quoted(beside)} would have no effect beside `credentialName`",
            f"leave out {quoted(beside)}, or `credentialName`",
        )


def _idle_without_verification(mode: ClientTlsMode) -> tuple[str, ...]:
    """Return the fields that have no effect beside `insecureSkipVerify`: those that verify the server. With the mode
    MUTUAL, `credentialName` is not among them, because its Secret also has the client's own certificate."""
    verifying = ("caCertificates", "caCrl", "subjectAltNames")
    return verifying if mode is ClientTlsMode.MUTUAL else (*verifying, "credentialName")


def _check_files(tls: Fields, found: ClientTls) -> None:
    if found.mode is ClientTlsMode.MUTUAL and not tls.has("credentialName"):
        for name in ("clientCertificate", "privateKey"):
            if not tls.has(name):
                tls.lacks(name, what=f"`mode: MUTUAL` needs `{name}`", hint="name a file in the proxy's file system")
    if not found.verify:
        idle = [name for name in _idle_without_verification(found.mode) if tls.has(name)]
        if idle:
            what = f"{quoted(idle)} would have no effect, since `insecureSkipVerify` accepts every certificate"
            tls.error(idle[0], what, f"leave out {quoted(idle)}, or `insecureSkipVerify`")
