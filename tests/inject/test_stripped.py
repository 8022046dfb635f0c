import copy

import pytest

from inject.pods import injected, pod
from weft.inject.stripped import strip

PROBED = {"name": "web", "image": "w", "livenessProbe": {"tcpSocket": {"port": 1}, "periodSeconds": 2}}


def test_a_stripped_pod_equals_the_original_except_for_idempotent_parts():
    before = pod(containers=[PROBED], initContainers=[{"name": "migrate", "image": "m"}])
    after = strip(injected(before))
    (web,) = after.pod["spec"]["containers"]
    assert web.pop("lifecycle") == {"preStop": {"sleep": {"seconds": 5}}}
    assert [web] == before["spec"]["containers"]
    assert after.pod["spec"]["initContainers"] == before["spec"]["initContainers"]
    assert set(after.current) == {"istio-init", "istio-proxy"}
    assert after.overrides == {}
    assert after.status.revision == "default"


def test_a_pod_that_had_no_init_containers_has_none_again():
    assert strip(injected(pod())).pod["spec"].get("initContainers", []) == []


def test_a_pods_overrides_of_injected_containers_are_extracted_and_kept():
    wish = {"name": "istio-proxy", "image": "auto"}
    before = pod(containers=[PROBED, wish])
    first = strip(before)
    assert first.overrides == {"istio-proxy": wish}
    assert (first.status, first.current) == (None, {})
    assert strip(injected(before)).overrides == {"istio-proxy": wish}


@pytest.mark.parametrize("text", ["", "x", "[]", "null", '{"initContainers": 1}'])
def test_an_invalid_status_annotation_counts_as_not_injected(text):
    found = strip(pod(annotations={"sidecar.istio.io/status": text}))
    assert found.status is None


@pytest.mark.parametrize(
    "text", ["", "x", "[]", '{"containers": 1}', '{"containers": [{"name": "web"}]}', '{"containers": null}']
)
def test_malformed_overrides_are_ignored(text):
    assert strip(pod(annotations={"proxy.istio.io/overrides": text})).overrides == {}


def test_the_pod_that_came_in_stays_as_it_is():
    before = injected(pod(containers=[PROBED]))
    kept = copy.deepcopy(before)
    strip(before)
    assert before == kept
