"""Istio's mesh-wide settings: the text under `mesh` in the ConfigMap `istio` of the root namespace. Other ConfigMaps
are none of a mesh's business."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from weft.api.access_log import read_logging
from weft.api.extension_provider import read_extension_providers
from weft.api.metadata import Meta
from weft.api.reader import Fields
from weft.api.sidecar import outbound_policy
from weft.api.syntax import is_host, words
from weft.api.yaml_text import YamlError, compose
from weft.base.problem import Severity
from weft.model.access_log import LogProvider
from weft.model.settings import PathNormalization, Settings

NAME = "istio"
# Fields of MeshConfig that production files carry and that this version does not act on.
_NOT_ACTED_ON = tuple(
    words("""
    proxyListenPort proxyHttpPort proxyInboundListenPort tcpKeepalive ingressClass ingressService
    ingressControllerMode ingressSelector enableTracing enableEnvoyAccessLogService
    defaultConfig configSources enableAutoMtls caCertificates dnsRefreshRate h2UpgradePolicy
    inboundTrafficPolicy inboundClusterStatName outboundClusterStatName certificates thriftConfig
    serviceSettings enablePrometheusMerge verifyCertificateAtClient ca
    discoverySelectors defaultHttpRetryPolicy meshMTLS tlsDefaults localityLbSetting
    serviceScopeConfigs serviceClusterDnsSearch sdsUdsPath
    """)
)


def read_config_map(root: Fields, meta: Meta) -> tuple[Settings, ...]:
    root.ignored("data", "binaryData", "immutable")
    if meta.name != NAME or meta.namespace != Settings().root_namespace:
        return ()
    data = root.fields("data", required=True)
    if data is None:
        return ()
    data.ignored("meshNetworks", "values", "original-values", "merged-values")
    if not data.has("mesh"):
        data.lacks("mesh", what="`mesh` is required", hint="its text holds the mesh's settings")
        return ()
    config = _embedded(data)
    return () if config is None else (_settings(config, meta),)


def _embedded(data: Fields) -> Fields | None:
    """The settings inside the text. Their lines are not known in the outer file, so all stand at the text's own
    line."""
    try:
        composed = compose(data.text("mesh"))
    except YamlError as error:
        data.error("mesh", f"line {error.flaw.line} of `mesh`: {error.flaw.what}", error.flaw.hint)
        return None
    for flaw in composed.flaws:
        tell = data.error if flaw.severity is Severity.ERROR else data.warning
        tell("mesh", f"line {flaw.line} of `mesh`: {flaw.what}", flaw.hint)
    value = {} if composed.value is None else composed.value
    if not isinstance(value, Mapping):
        data.error("mesh", "`mesh` must hold a mapping", "for example `outboundTrafficPolicy: {mode: REGISTRY_ONLY}`")
        return None
    return data.embedded("mesh", value)


def _settings(config: Fields, meta: Meta) -> Settings:
    # The last two are read, for the features that will need them.
    config.unsupported(*_NOT_ACTED_ON, "trustDomain", "defaultServiceExportTo")
    default = Settings()
    trust_domain = config.text("trustDomain", default=default.trust_domain, most=255)
    if not is_host(trust_domain):
        config.error("trustDomain", f"`{trust_domain}` is not a trust domain", "a name such as cluster.local")
    providers = read_extension_providers(config)
    logging = read_logging(config, tuple(provider for provider in providers if isinstance(provider, LogProvider)))
    detection = config.duration("protocolDetectionTimeout", least=timedelta(0))
    return Settings(
        domain=meta.domain,
        trust_domain=trust_domain,
        trust_domain_aliases=_aliases(config),
        root_namespace=config.text("rootNamespace", default=default.root_namespace, most=63),
        outbound_policy=outbound_policy(config) or default.outbound_policy,
        detection_timeout=default.detection_timeout if detection is None else detection,
        connect_timeout=config.duration("connectTimeout") or default.connect_timeout,
        logs=logging.logs,
        log_providers=logging.providers,
        default_log_providers=logging.defaults,
        listener_logs=not config.boolean("disableEnvoyListenerLog"),
        service_export_to=config.texts("defaultServiceExportTo") or ("*",),
        virtual_service_export_to=config.texts("defaultVirtualServiceExportTo") or ("*",),
        destination_rule_export_to=config.texts("defaultDestinationRuleExportTo") or ("*",),
        path_normalization=_path_normalization(config),
        extension_providers=tuple(provider for provider in providers if not isinstance(provider, LogProvider)),
        origin=meta.origin,
    )


def _aliases(config: Fields) -> tuple[str, ...]:
    found = config.texts("trustDomainAliases", most=255)
    for index, name in enumerate(found):
        if not is_host(name):
            config.error(("trustDomainAliases", index), f"`{name}` is not a trust domain", "a name such as old.local")
    return found


def _path_normalization(config: Fields) -> PathNormalization:
    fields = config.fields("pathNormalization")
    default = Settings().path_normalization
    if fields is None:
        return default
    word = fields.choice("normalization", ("DEFAULT", *PathNormalization), default="DEFAULT")
    if word == PathNormalization.NONE:
        what = "without normalization a percent-encoded letter (`/%61dmin`) gets round a policy on paths"
        fields.warning("normalization", what, "BASE is the default")
    return default if word == "DEFAULT" else PathNormalization(word)
