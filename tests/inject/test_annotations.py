import json

import pytest

from weft.inject.annotations import InjectionRefused, read
from weft.inject.settings import InjectionSettings, ProxyResources

SIDECAR = "sidecar.istio.io/"
NAMED = "Pod shop/web"


def wishes(**settings):
    def of(annotations):
        return read(annotations, InjectionSettings(**settings), NAMED)

    return of


def test_a_pod_without_annotations_gets_the_installations_settings():
    found = wishes(image="weft:9", log_level="info", concurrency=3, drain_duration="7s")({})
    assert (found.image, found.log_level, found.concurrency, found.drain_seconds) == ("weft:9", "info", 3, 7)
    assert found.redirected and found.rewrite_probes and found.status_port == 15020
    assert found.native is None
    assert found.warnings == ()


def test_each_annotation_has_an_effect():
    found = wishes()(
        {
            f"{SIDECAR}proxyImage": "registry.example/weft:2",
            f"{SIDECAR}logLevel": "debug",
            f"{SIDECAR}componentLogLevel": "upstream:debug,http:trace",
            f"{SIDECAR}rewriteAppHTTPProbers": "false",
            f"{SIDECAR}interceptionMode": "NONE",
            f"{SIDECAR}nativeSidecar": "false",
            f"{SIDECAR}userVolume": '{"certs": {"secret": {"secretName": "x"}}}',
            f"{SIDECAR}userVolumeMount": '[{"name": "certs", "mountPath": "/certs"}]',
            "status.sidecar.istio.io/port": "16020",
            "readiness.status.sidecar.istio.io/periodSeconds": "2",
            "prometheus.istio.io/merge-metrics": "false",
            "proxy.istio.io/config": "concurrency: 2\nterminationDrainDuration: 90s\nproxyMetadata: {A: b}",
        }
    )
    assert found.image == "registry.example/weft:2"
    assert (found.log_level, found.component_log_level) == ("debug", "upstream:debug,http:trace")
    assert not (found.rewrite_probes or found.redirected or found.native or found.prometheus)
    assert found.volumes == ({"name": "certs", "secret": {"secretName": "x"}},)
    assert found.mounts == ({"name": "certs", "mountPath": "/certs"},)
    assert (found.status_port, found.readiness["periodSeconds"]) == (16020, 2)
    assert (found.concurrency, found.termination_seconds, found.environment) == (2, 90, {"A": "b"})
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("said", "requests", "limits"),
    [
        ({"proxyCPU": "50m"}, {"cpu": "50m", "memory": "64Mi"}, {"cpu": "2", "memory": "1Gi"}),
        ({"proxyCPU": "4"}, {"cpu": "4", "memory": "64Mi"}, {"cpu": "4", "memory": "1Gi"}),
        ({"proxyMemoryLimit": "32Mi"}, {"cpu": "10m", "memory": "32Mi"}, {"cpu": "2", "memory": "32Mi"}),
        (
            {"proxyCPU": "1", "proxyMemory": "1Gi", "proxyCPULimit": "2000m", "proxyMemoryLimit": "2Gi"},
            {"cpu": "1", "memory": "1Gi"},
            {"cpu": "2000m", "memory": "2Gi"},
        ),
    ],
)
def test_one_amount_alone_keeps_the_others_as_far_as_they_go_together(said, requests, limits):
    found = wishes()({SIDECAR + name: value for name, value in said.items()})
    assert found.resources == ProxyResources(requests=requests, limits=limits)


@pytest.mark.parametrize(
    ("annotation", "value", "words"),
    [
        (f"{SIDECAR}interceptionMode", "TPROXY", "not supported: use REDIRECT"),
        (f"{SIDECAR}interceptionMode", "redirect", "unknown"),
        (f"{SIDECAR}rewriteAppHTTPProbers", "maybe", "neither true nor false"),
        (f"{SIDECAR}proxyCPU", "much", "not an amount"),
        (f"{SIDECAR}proxyImage", "a b", "not an image"),
        (f"{SIDECAR}logLevel", "verbose", "not a log level"),
        (f"{SIDECAR}componentLogLevel", "upstream=debug", "component's log level"),
        (f"{SIDECAR}userVolume", "{", "not JSON"),
        (f"{SIDECAR}userVolume", '["certs"]', "must be JSON such as"),
        (f"{SIDECAR}userVolumeMount", "[" * 5000, "not JSON"),
        ("status.sidecar.istio.io/port", "x", "is neither a port nor 0"),
        ("status.sidecar.istio.io/port", "15006", "already uses port 15006"),
        ("readiness.status.sidecar.istio.io/failureThreshold", "-1", "whole number"),
        ("prometheus.istio.io/merge-metrics", "x", "neither true nor false"),
        ("traffic.sidecar.istio.io/excludeInboundPorts", "http", "not a port"),
        ("proxy.istio.io/config", "concurrency: many", "concurrency: `many`"),
        ("proxy.istio.io/config", "a: [", "not YAML"),
    ],
)
def test_an_invalid_value_is_rejected_with_its_annotation(annotation, value, words):
    with pytest.raises(InjectionRefused) as refusal:
        wishes()({annotation: value})
    (problem,) = refusal.value.problems
    assert problem.where.object == NAMED
    assert problem.where.field == f"metadata.annotations[{annotation}]"
    assert words in problem.what


def test_all_errors_are_reported_at_once():
    with pytest.raises(InjectionRefused) as refusal:
        wishes()(
            {f"{SIDECAR}proxyCPU": "x", f"{SIDECAR}logLevel": "y", "traffic.sidecar.istio.io/excludeInboundPorts": "z"}
        )
    assert len(refusal.value.problems) == 3


def test_a_request_above_its_own_limit_is_refused():
    with pytest.raises(InjectionRefused, match="above the limit of 1"):
        wishes()({f"{SIDECAR}proxyCPU": "2", f"{SIDECAR}proxyCPULimit": "1"})


def test_unused_annotations_are_warned_about():
    found = wishes()(
        {
            f"{SIDECAR}bootstrapOverride": "x",
            f"{SIDECAR}proxyCpu": "1",
            "traffic.sidecar.istio.io/excludeInboundPort": "80",
            "proxy.istio.io/config": "tracing: {}\nconcurency: 2",
            "other.example/annotation": "x",
        }
    )
    assert sorted(found.warnings) == [
        "proxy.istio.io/config: unknown field `concurency`: did you mean `concurrency`?",
        "proxy.istio.io/config: weft does not use `tracing`",
        "unknown annotation sidecar.istio.io/proxyCpu: did you mean `sidecar.istio.io/proxyCPU`?",
        "unknown annotation traffic.sidecar.istio.io/excludeInboundPort: did you mean"
        " `traffic.sidecar.istio.io/excludeInboundPorts`?",
        "weft does not use the annotation sidecar.istio.io/bootstrapOverride",
    ]


def test_volumes_may_be_one_object_by_name_or_a_list():
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]
    by_name = {each["name"]: {"emptyDir": {}} for each in volumes}
    for text in (json.dumps(volumes), json.dumps(by_name)):
        assert wishes()({f"{SIDECAR}userVolume": text}).volumes == tuple(volumes)


def test_only_the_first_of_many_problems_and_warnings_are_reported():
    """A pod's author decides how many there are, and must not slow down the webhook."""
    with pytest.raises(InjectionRefused) as refusal:
        wishes()({"traffic.sidecar.istio.io/excludeInboundPorts": ",".join(["x"] * 5_000)})
    assert len(refusal.value.problems) == 20
    assert len(wishes()({f"{SIDECAR}nobody-{number}": "" for number in range(500)}).warnings) == 20
    assert len(wishes()({"proxy.istio.io/config": "\n".join(f"a{each}: 1" for each in range(500))}).warnings) == 20


def test_a_yaml_alias_bomb_in_a_configuration_is_rejected_before_it_expands():
    text = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    text += "\n".join(
        f"{chr(98 + each)}: &{chr(98 + each)} [{', '.join(['*' + chr(97 + each)] * 9)}]" for each in range(4)
    )
    with pytest.raises(InjectionRefused, match="more than 2000 values"):
        wishes()({"proxy.istio.io/config": text})
