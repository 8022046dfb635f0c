from datetime import timedelta
from textwrap import indent

import pytest

from api.reading import read, told, value
from weft.api.document import Document
from weft.api.parse import parse
from weft.model.access_log import Encoding, FileLog
from weft.model.names import ObjectKey
from weft.model.on_demand import OnDemand
from weft.model.settings import CIPHERS
from weft.model.sidecar import OutboundPolicy
from weft.model.virtual_service import Retries


def config(mesh, name="istio", namespace="istio-system"):
    return (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        f"data:\n  mesh: |\n{indent(mesh, '    ')}"
    )


def test_reads_the_settings():
    found = value(
        config(
            "trustDomain: td\noutboundTrafficPolicy: {mode: REGISTRY_ONLY}\nprotocolDetectionTimeout: "
            "100ms\nconnectTimeout: 3s\n"
            "accessLogFile: /dev/stdout\naccessLogEncoding: JSON\ndefaultServiceExportTo: ['.']\n"
        )
    )
    assert found.trust_domain == "td"
    assert found.outbound_policy is OutboundPolicy.REGISTRY_ONLY
    assert found.detection_timeout == timedelta(milliseconds=100)
    assert found.connect_timeout == timedelta(seconds=3)
    assert found.logs == (FileLog("/dev/stdout", Encoding.JSON),)
    assert found.service_export_to == (".",)
    assert found.domain == "cluster.local"


def test_reads_the_default_retries():
    assert value(config("defaultHttpRetryPolicy: {attempts: 3, retryOn: 5xx}")).retries == Retries(3, retry_on="5xx")
    assert value(config("defaultHttpRetryPolicy: {attempts: 0}")).retries == Retries(0)
    (line,) = told(config("defaultHttpRetryPolicy: {attempts: 3, retryOn: 5xxx}"))
    assert "`5xxx` is not a retry condition" in line


def test_an_empty_text_is_all_defaults():
    assert value(config("\n")).outbound_policy is OutboundPolicy.ALLOW_ANY


def test_other_config_maps_are_not_read():
    for text in (config("x: y", name="other"), config("x: y", namespace="shop")):
        assert read(text).values == ()
        assert read(text).problems == ()


def test_reports_what_is_wrong():
    assert told(config("trustDomian: x\n")) == ["6 unknown field `trustDomian` (did you mean `trustDomain`?)"]
    assert told(config("enablePrometheusMerge: true\n")) == [
        "6 warning: `enablePrometheusMerge` is ignored by this version of weft"
    ]
    assert told(config("a: [\n"))[0].startswith("6 this is not YAML:")
    assert told(config("- a\n")) == [
        "5 `mesh` must be a mapping (for example `outboundTrafficPolicy: {mode: REGISTRY_ONLY}`)"
    ]
    assert told(config("connectTimeout: 1s\nconnectTimeout: 2s\n")) == [
        "7 `connectTimeout` is set twice, here and on line 6 (keep only one of the two: YAML would silently use the last value)"
    ]


def test_reads_path_normalization_and_warns_if_it_is_off():
    assert value(config("{}")).path_normalization == "BASE"
    assert value(config("pathNormalization: {normalization: DEFAULT}")).path_normalization == "BASE"
    assert value(config("pathNormalization: {normalization: MERGE_SLASHES}")).path_normalization == "MERGE_SLASHES"
    (said,) = told(config("pathNormalization: {normalization: NONE}"))
    assert "bypasses a policy on paths" in said


def test_reads_trust_domain_aliases():
    assert value(config("trustDomainAliases: [old.local, older]")).trust_domain_aliases == ("old.local", "older")
    assert "is not a trust domain" in told(config("trustDomainAliases: ['a/b']"))[0]


def test_reads_the_trust_and_mutual_tls_settings():
    found = value(
        config(
            "trustDomain: new.example\ntrustDomainAliases: [old.example, older.example]\nenableAutoMtls: false\n"
            "meshMTLS: {minProtocolVersion: TLSV1_3, cipherSuites: [ECDHE-RSA-AES256-GCM-SHA384]}\n"
        )
    )
    assert (found.trust_domain, found.trust_domain_aliases) == ("new.example", ("old.example", "older.example"))
    assert found.auto_mtls is False
    assert (found.mtls_least, found.mtls_ciphers) == ("TLSV1_3", ("ECDHE-RSA-AES256-GCM-SHA384",))
    default = value(config("meshMTLS: {minProtocolVersion: TLS_AUTO}\n"))
    assert (default.auto_mtls, default.mtls_least, default.mtls_ciphers) == (True, "TLSV1_2", CIPHERS)


def test_reports_wrong_trust_settings():
    assert told(config("trustDomain: Cluster.Local\n")) == [
        "6 `Cluster.Local` is not a trust domain (write a name such as cluster.local, in lower case)"
    ]
    assert told(config("trustDomainAliases: [a/b]\n"))[0].startswith("6 `a/b` is not a trust domain")
    assert told(config("meshMTLS: {minProtocolVersion: TLSV1_1}\n"))[0].startswith(
        "6 `minProtocolVersion` cannot be `TLSV1_1`"
    )
    assert told(config("meshMTLS: {cipherSuites: [AES128-SHA]}\n"))[0].startswith(
        "6 `AES128-SHA` is not a cipher suite for TLS 1.2 that weft supports"
    )


def test_a_problem_in_a_literal_block_has_its_own_line():
    assert told(
        config("# a comment\n\nextensionProviders:\n- name: a\n  envoyExtAuthzHttp: {service: b.c,\n    prot: 80}\n")
    ) == ["11 unknown field `prot` (did you mean `port`?)"]


def test_problems_in_quoted_or_folded_text_have_the_line_where_the_text_begins():
    for text in ('mesh: "a: b\\nconnectTimeout: 5"', "mesh: >\n    a: b\n\n    connectTimeout: 5\n"):
        written = config("x").partition("  mesh:")[0] + "  " + text
        assert {line.split(" ")[0] for line in told(written)} == {"5"}
    written = config("x").partition("  mesh:")[0] + '  mesh: "a: 1s\\na: 2s"'
    assert told(written)[0].startswith("5 line 2 of `mesh`: `a` is set twice, here and on line 1")


def test_from_an_api_server_only_the_config_map_with_the_right_name_is_read():
    """In files, ConfigMaps with similar names may exist."""
    for name, namespace, from_server, from_file in (
        ("istio-canary", "istio-system", 1, 0),
        ("istio", "mesh", 1, 0),
        ("istio", "istio-system", 1, 1),
        ("other", "istio-system", 0, 0),
    ):
        key = ObjectKey("ConfigMap", namespace, name)
        body = {"metadata": {"name": name, "namespace": namespace}, "data": {"mesh": "trustDomain: td"}}
        assert len(parse(Document(key, "v1", body)).values) == from_server, (name, namespace)
        assert len(parse(Document(key, "v1", body, file="mesh.yaml")).values) == from_file, (name, namespace)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("defaultConfig: {gatewayTopology: {numTrustedProxies: 2}}", ()),
        (
            "defaultConfig: {gatewayTopology: {numTrustedProxies: -1}}",
            ("`numTrustedProxies` must be a number from 0 to 255",),
        ),
        ("defaultConfig: {gatewayTopology: {forwardClientCertDetails: ALWAYS_FORWARD_ONLY}}", ("is not supported",)),
        ("defaultConfig: {concurrency: 2}", ("`defaultConfig` is ignored",)),
        (
            "defaultConfig: {concurrency: 2, gatewayTopology: {numTrustedProxies: 1}}",
            ("`concurrency` is ignored",),
        ),
    ],
)
def test_only_the_number_of_trusted_proxies_is_read_from_the_default_config(config, said):
    text = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: istio, namespace: istio-system}}\ndata:\n  mesh: |\n    "
        f"{config}\n"
    )
    parsed = read(text)
    assert len(parsed.problems) == len(said)
    assert all(word in str(parsed.problems[0]) for word in said)
    if not said:
        assert parsed.values[0].trusted_proxies == 2


def test_on_demand_scope_is_an_annotation():
    def written(word):
        return config("{}").replace(
            "namespace: istio-system", f"namespace: istio-system, annotations: {{weft.dev/on-demand: {word}}}"
        )

    for word in OnDemand:
        assert value(written(f'"{word}"')).on_demand is word
    assert value(config("{}")).on_demand is OnDemand.AUTO
    (problem,) = told(written('"yes"'))
    assert problem.startswith("3 the annotation weft.dev/on-demand is `yes`, which is not a valid value")
    assert 'write "auto", "true" or "false"' in problem
    assert len(told(written("true"))) == 1  # in quotes, and nothing else is wrong with it


def test_the_treatment_of_underscores_in_header_names_is_an_annotation():
    def written(word):
        note = f"annotations: {{weft.dev/headers-with-underscores: {word}}}"
        return config("{}").replace("namespace: istio-system", f"namespace: istio-system, {note}")

    assert value(config("{}")).underscores == "allow"
    assert [value(written(word)).underscores for word in ("allow", "drop", "reject")] == ["allow", "drop", "reject"]
    assert "is `no`, which is not a valid value" in told(written('"no"'))[0]


def test_the_longest_request_at_gateways_is_an_annotation():
    def written(word):
        note = f"annotations: {{weft.dev/request-timeout: {word}}}"
        return config("{}").replace("namespace: istio-system", f"namespace: istio-system, {note}")

    assert value(config("{}")).request_timeout == timedelta(hours=1)
    assert value(written("5m")).request_timeout == timedelta(minutes=5)
    assert value(written("0s")).request_timeout == timedelta(0)
    for word in ("soon", "1us", "99999h"):
        assert f"is `{word}`, which is not a valid value" in told(written(word))[0]


def test_a_misspelled_annotation_is_reported():
    text = config("{}").replace(
        "namespace: istio-system", 'namespace: istio-system, annotations: {weft.dev/ondemand: "true"}'
    )
    (said,) = told(text)
    assert "weft does not read the annotation weft.dev/ondemand" in said and "weft.dev/on-demand" in said
