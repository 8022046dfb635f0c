"""Reads Istio's mesh-wide settings (MeshConfig): the text under `mesh` in the ConfigMap `istio` of the root namespace.
From other ConfigMaps only CA certificates (`ca.crt`) are read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from weft.api.access_log import read_logging
from weft.api.authorities import authorities
from weft.api.document import Path
from weft.api.extension_provider import read_extension_providers
from weft.api.http_changes import read_retries
from weft.api.locality import read_locality
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.sidecar import outbound_policy
from weft.api.syntax import has_milliseconds_at_most, parse_duration, words
from weft.api.yaml_text import TextFlaw, YamlError, compose
from weft.base.problem import Severity
from weft.base.suggest import did_you_mean
from weft.model.access_log import LogProvider
from weft.model.gateway_api import AuthorityBundle
from weft.model.identity import is_trust_domain
from weft.model.on_demand import OnDemand
from weft.model.settings import CIPHERS, PathNormalization, Settings, Underscores

NAME = "istio"
_LONGEST_REQUEST = timedelta(days=365)
_MOST_PROXIES = 255  # largest number of trusted proxies in front of a gateway
ON_DEMAND = "weft.dev/on-demand"  # an annotation: Istio's MeshConfig has no such field
UNDERSCORES = "weft.dev/headers-with-underscores"  # an annotation, too; for gateways
REQUEST_TIMEOUT = "weft.dev/request-timeout"  # an annotation, too; for gateways
# Fields of MeshConfig that are common in production and that this version of weft ignores.
_NOT_ACTED_ON = tuple(
    words("""
    proxyListenPort proxyHttpPort proxyInboundListenPort tcpKeepalive ingressClass ingressService
    ingressControllerMode ingressSelector enableTracing enableEnvoyAccessLogService
    configSources caCertificates dnsRefreshRate h2UpgradePolicy
    inboundTrafficPolicy inboundClusterStatName outboundClusterStatName certificates thriftConfig
    serviceSettings enablePrometheusMerge verifyCertificateAtClient ca
    discoverySelectors tlsDefaults
    serviceScopeConfigs serviceClusterDnsSearch sdsUdsPath
    """)
)


def read_config_map(root: Fields, meta: Meta) -> tuple[Settings | AuthorityBundle, ...]:
    root.ignored("data", "binaryData", "immutable")
    if not _is_mesh_config(meta, from_file=bool(root.report.document.file)):
        return _bundle(root, meta)
    data = root.fields("data", required=True)
    if data is None:
        return ()
    data.ignored("meshNetworks", "values", "original-values", "merged-values")
    if not data.has("mesh"):
        data.lacks("mesh", what="`mesh` is required", hint="write the MeshConfig as the text of `mesh`")
        return ()
    config = _embedded(data)
    return () if config is None else (_settings(config, meta),)


def _bundle(root: Fields, meta: Meta) -> tuple[AuthorityBundle, ...]:
    """Return the CA certificates in a ConfigMap; a BackendTLSPolicy may refer to them. Empty if it has none."""
    roots = authorities({"data": root.raw("data")})
    return (AuthorityBundle(meta.name, meta.namespace, roots, meta.origin),) if roots else ()


def _is_mesh_config(meta: Meta, *, from_file: bool) -> bool:
    if meta.name == NAME and meta.namespace == Settings().root_namespace:
        return True
    # From an API server the control plane reads only one ConfigMap with settings, in any namespace: `istio`, or
    # `istio-REVISION`.
    return not from_file and (meta.name == NAME or meta.name.startswith(f"{NAME}-"))


def _embedded(data: Fields) -> Fields | None:
    """Parse the text of the MeshConfig, which is in the field `mesh` of `data`, a ConfigMap's data. None if the text is
    not a YAML mapping. The line of a problem is that of the setting if the text is a literal block (`mesh: |`);
    otherwise it is the line of `mesh`."""
    text, start = data.text("mesh"), data.text_line("mesh")
    try:
        composed = compose(text, start or 1)
    except YamlError as error:
        _report(data, error.flaw, start)
        return None
    for flaw in composed.flaws:
        _report(data, flaw, start)
    value = {} if composed.value is None else composed.value
    if not isinstance(value, Mapping):
        data.error("mesh", "`mesh` must be a mapping", "for example `outboundTrafficPolicy: {mode: REGISTRY_ONLY}`")
        return None
    return data.embedded("mesh", value, composed.lines if start else None)


def _report(data: Fields, flaw: TextFlaw, start: int) -> None:
    what = flaw.what if start else f"line {flaw.line} of `mesh`: {flaw.what}"
    at: Path = ("mesh",)
    if start:
        at = ("mesh", f"line {flaw.line - start + 1}")
        data.report.add_lines({(*data.path, *at): flaw.line})
    (data.error if flaw.severity is Severity.ERROR else data.warning)(at, what, flaw.hint)


def _settings(config: Fields, meta: Meta) -> Settings:
    # `defaultServiceExportTo` is parsed, but has no effect yet.
    config.unsupported(*_NOT_ACTED_ON, "defaultServiceExportTo")
    default = Settings()
    trust_domain = config.text("trustDomain", default=default.trust_domain, most=255)
    aliases = config.texts("trustDomainAliases", most=255)
    _check_trust_domain(config, "trustDomain", trust_domain)
    for index, alias in enumerate(aliases):
        _check_trust_domain(config, ("trustDomainAliases", index), alias)
    between = config.fields("meshMTLS")
    automatic = config.boolean("enableAutoMtls")
    providers = read_extension_providers(config)
    logging = read_logging(config, tuple(provider for provider in providers if isinstance(provider, LogProvider)))
    detection = config.duration("protocolDetectionTimeout", least=timedelta(0))
    return Settings(
        domain=meta.domain,
        trust_domain=trust_domain,
        trust_domain_aliases=aliases,
        auto_mtls=default.auto_mtls if automatic is None else automatic,
        mtls_least=_least(between) if between else default.mtls_least,
        mtls_ciphers=(_ciphers(between) if between else ()) or default.mtls_ciphers,
        root_namespace=config.text("rootNamespace", default=default.root_namespace, most=63),
        outbound_policy=outbound_policy(config) or default.outbound_policy,
        detection_timeout=default.detection_timeout if detection is None else detection,
        connect_timeout=config.duration("connectTimeout") or default.connect_timeout,
        retries=read_retries(config, "defaultHttpRetryPolicy"),
        logs=logging.logs,
        log_providers=logging.providers,
        default_log_providers=logging.defaults,
        listener_logs=not config.boolean("disableEnvoyListenerLog"),
        service_export_to=config.texts("defaultServiceExportTo") or ("*",),
        virtual_service_export_to=config.texts("defaultVirtualServiceExportTo") or ("*",),
        destination_rule_export_to=config.texts("defaultDestinationRuleExportTo") or ("*",),
        locality=read_locality(config) or default.locality,
        on_demand=_on_demand(config, meta),
        path_normalization=_path_normalization(config),
        trusted_proxies=_trusted_proxies(config),
        underscores=_underscores(config, meta),
        request_timeout=_request_timeout(config, meta),
        extension_providers=tuple(provider for provider in providers if not isinstance(provider, LogProvider)),
        origin=meta.origin,
    )


def _trusted_proxies(config: Fields) -> int:
    """Return `numTrustedProxies` of the `gatewayTopology`, the number of trusted proxies in front of the gateways; 0 if
    it is not set. It is the only supported setting in `defaultConfig`: other fields of `gatewayTopology` are errors,
    other fields of `defaultConfig` get a warning."""
    written = config.raw("defaultConfig")
    topology = written.get("gatewayTopology") if isinstance(written, Mapping) else None
    if not isinstance(topology, Mapping):
        config.unsupported("defaultConfig")
        return 0
    config.ignored("defaultConfig")
    at = ("defaultConfig", "gatewayTopology")
    for name in sorted({*written} - {"gatewayTopology"}, key=str):
        config.warning(("defaultConfig", str(name)), f"`{name}` is ignored by this version of weft")
    for name in sorted({*topology} - {"numTrustedProxies"}, key=str):
        config.error((*at, str(name)), f"`{name}` is not supported: gateways would be less strict than configured")
    number = topology.get("numTrustedProxies", 0)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_PROXIES:
        config.error((*at, "numTrustedProxies"), f"`numTrustedProxies` must be a number from 0 to {_MOST_PROXIES}")
        return 0
    return number


def _on_demand(config: Fields, meta: Meta) -> OnDemand:
    at = ("metadata", "annotations", ON_DEMAND)
    for name in dict(meta.annotations):
        guess = did_you_mean(name, (ON_DEMAND,)) if name != ON_DEMAND and name.startswith("weft.dev/") else ""
        if guess.startswith("did you"):
            config.report.warning((*at[:2], name), f"weft does not read the annotation {name}", guess)
    written = dict(meta.annotations).get(ON_DEMAND, OnDemand.AUTO)
    if written in tuple(OnDemand):
        return OnDemand(written)
    if not config.report.is_wrong(at):
        what = f"the annotation {ON_DEMAND} is `{written[:40]}`, which is not a valid value"
        config.report.error(at, what, 'write "auto", "true" or "false", in quotes')
    return OnDemand.AUTO


def _underscores(config: Fields, meta: Meta) -> Underscores:
    at = ("metadata", "annotations", UNDERSCORES)
    written = dict(meta.annotations).get(UNDERSCORES, Underscores.ALLOW)
    if written not in set(Underscores):
        if not config.report.is_wrong(at):
            what = f"the annotation {UNDERSCORES} is `{written[:40]}`, which is not a valid value"
            config.report.error(at, what, f"write {', '.join(Underscores)}")
        return Underscores.REJECT  # fail closed: the author wants to restrict headers
    return Underscores(written)


def _request_timeout(config: Fields, meta: Meta) -> timedelta:
    at, default = ("metadata", "annotations", REQUEST_TIMEOUT), Settings().request_timeout
    written = dict(meta.annotations).get(REQUEST_TIMEOUT)
    if written is None:
        return default
    length = parse_duration(written)
    if length is None or not has_milliseconds_at_most(written) or length > _LONGEST_REQUEST:
        if not config.report.is_wrong(at):
            what = f"the annotation {REQUEST_TIMEOUT} is `{written[:40]}`, which is not a valid value"
            config.report.error(at, what, "write a duration up to 8760h, for example 10m, or 0s for no limit")
        return default
    return length


def _check_trust_domain(config: Fields, at: str | Path, written: str) -> None:
    if not is_trust_domain(written):
        config.error(at, f"`{written[:80]}` is not a trust domain", "write a name such as cluster.local, in lower case")


def _least(between: Fields) -> str:
    between.unsupported("ecdhCurves")
    written = between.choice("minProtocolVersion", ("TLS_AUTO", "TLSV1_2", "TLSV1_3"), default="TLS_AUTO")
    return Settings().mtls_least if written == "TLS_AUTO" else written


def _ciphers(between: Fields) -> tuple[str, ...]:
    suites = between.texts("cipherSuites", most=80)
    for index, name in enumerate(suites):
        if name not in CIPHERS:
            what = f"`{name}` is not a cipher suite for TLS 1.2 that weft supports"
            between.error(("cipherSuites", index), what, did_you_mean(name, CIPHERS) or f"for example {CIPHERS[0]}")
    return suites


def _path_normalization(config: Fields) -> PathNormalization:
    fields = config.fields("pathNormalization")
    default = Settings().path_normalization
    if fields is None:
        return default
    word = fields.choice("normalization", ("DEFAULT", *PathNormalization), default="DEFAULT")
    if word == PathNormalization.NONE:
        what = "without normalization a percent-encoded letter (`/%61dmin`) bypasses a policy on paths"
        fields.warning("normalization", what, "use BASE, the default")
    return default if word == "DEFAULT" else PathNormalization(word)
