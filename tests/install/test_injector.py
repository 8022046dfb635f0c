"""The ConfigMap of the injector: weft's settings, and the same in the format that istioctl and Kiali read."""

import json

import pytest
import yaml

from weft.inject.decision import decide, required
from weft.inject.settings import InjectionSettings, read_config_map
from weft.install.injector import injector_data, injector_settings
from weft.install.values import OURS, values_of
from weft.install.webhooks import injector


def settings_of(values):
    return read_config_map(injector_data(values), "ConfigMap")


def test_the_injector_can_read_its_settings():
    values = values_of({
        "revision": "a",
        "image": "example.org/weft:1",
        "mesh": {"trustDomain": "example.org"},
        "injection": {"redirectBy": "node", "byDefault": True, "settings": {"concurrency": 2}},
    })  # fmt: skip
    settings = settings_of(values)
    assert (settings.image, settings.revision, settings.driver) == ("example.org/weft:1", "a", "a.csi.weft.dev")
    assert (settings.redirect_by, settings.concurrency, settings.trust_domain) == ("node", 2, "example.org")
    assert settings.enable_namespaces_by_default


def test_the_injector_leaves_the_same_namespaces_alone_as_the_webhooks():
    values = values_of({"injection": {"excludedNamespaces": ["kube-system", "theirs"]}})
    settings = settings_of(values)
    assert settings.excluded_namespaces == ("kube-system", "theirs")
    pod = {"metadata": {"labels": {"sidecar.istio.io/inject": "true"}}, "spec": {}}
    asked = {name: decide(pod, name, {}, settings).inject for name in ("kube-system", "theirs", "kube-public", "shop")}
    assert asked == {"kube-system": False, "theirs": False, "kube-public": True, "shop": True}
    assert not required(pod, "theirs", settings).inject


def test_what_the_installation_decides_cannot_be_given_twice():
    assert set(injector_settings(values_of({}))) == OURS
    assert set(json.loads(injector_data(values_of({}))["settings"])) == OURS


def istio_values(given):
    return json.loads(injector_data(values_of(given))["values"])


def test_istioctl_finds_whether_namespaces_are_injected_by_default():
    """`istioctl analyze` and `bug-report` panic if this field is not a boolean at this place."""
    for chosen in (True, False):
        values = istio_values({"injection": {"byDefault": chosen}})
        assert values["sidecarInjectorWebhook"]["enableNamespacesByDefault"] is chosen


@pytest.mark.parametrize(
    ("image", "shown"),
    [
        ("example.org/weft:1", "example.org/weft:1"),
        ("example.org:5000/weft@sha256:0f", "example.org:5000/weft@sha256:0f"),
        ("weft:1", "docker.io/library/weft:1"),
        ("weft", "docker.io/library/weft:latest"),
    ],
)
def test_istioctl_finds_the_image_of_the_proxy(image, shown):
    """`istioctl x injector list` shows it, and `istioctl analyze` compares it with the images of pods."""
    found = istio_values({"image": image})["global"]
    name = found["proxy"]["image"]
    assert (name if "/" in name else f"{found['hub']}/{name}:{found['tag']}") == shown


def test_without_settings_istios_tools_find_the_defaults_of_the_injector():
    found, default = istio_values({}), InjectionSettings()
    assert found["global"]["proxy"]["logLevel"] == default.log_level
    assert found["global"]["proxy"]["componentLogLevel"] == default.component_log_level
    assert found["global"]["multiCluster"]["clusterName"] == default.cluster_id
    assert found["global"]["network"] == default.network
    assert found["sidecarInjectorWebhook"]["rewriteAppHTTPProbe"] is default.rewrite_app_probes
    assert (found["global"]["proxy"]["autoInject"] == "enabled") is default.auto_inject


def test_what_users_choose_is_shown_to_istios_tools():
    selector = [{"matchLabels": {"a": "b"}}]
    chosen = {
        "network": "east",
        "clusterId": "one",
        "meshId": "m",
        "autoInject": False,
        "neverInjectSelector": selector,
    }
    values = values_of({"revision": "canary", "injection": {"settings": chosen}})
    found = json.loads(injector_data(values)["values"])
    assert (found["revision"], found["global"]["network"], found["global"]["meshID"]) == ("canary", "east", "m")
    assert found["global"]["multiCluster"]["clusterName"] == "one"
    assert found["sidecarInjectorWebhook"]["neverInjectSelector"] == selector
    config = yaml.safe_load(injector_data(values)["config"])
    assert (config["policy"], config["neverInjectSelector"]) == ("disabled", selector)


def test_istios_tools_find_the_reinvocation_policy_of_the_webhooks():
    values = values_of({})
    (policy,) = {each["reinvocationPolicy"] for each in injector(values)["webhooks"]}
    assert istio_values({})["sidecarInjectorWebhook"]["reinvocationPolicy"] == policy
