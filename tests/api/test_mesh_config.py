from datetime import timedelta
from textwrap import indent

from api.reading import read, told, value
from weft.model.access_log import Encoding, FileLog
from weft.model.sidecar import OutboundPolicy


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


def test_an_empty_text_is_all_defaults():
    assert value(config("\n")).outbound_policy is OutboundPolicy.ALLOW_ANY


def test_other_config_maps_are_not_read():
    for text in (config("x: y", name="other"), config("x: y", namespace="shop")):
        assert read(text).values == ()
        assert read(text).problems == ()


def test_says_what_is_wrong():
    assert told(config("trustDomian: x\n")) == ["5 unknown field `trustDomian` (did you mean `trustDomain`?)"]
    assert told(config("enablePrometheusMerge: true\n")) == [
        "5 warning: `enablePrometheusMerge` is not acted on by this version of weft"
    ]
    assert told(config("a: [\n"))[0].startswith("5 line 1 of `mesh`: this is not YAML:")
    assert told(config("- a\n")) == [
        "5 `mesh` must hold a mapping (for example `outboundTrafficPolicy: {mode: REGISTRY_ONLY}`)"
    ]
    assert told(config("connectTimeout: 1s\nconnectTimeout: 2s\n")) == [
        "5 line 2 of `mesh`: `connectTimeout` stands twice, here and on line 1 "
        "(YAML would silently take the last one; keep one)"
    ]
