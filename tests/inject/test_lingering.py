"""An application keeps responding until its callers have been notified that it ends."""

import pytest

from inject.pods import container, injected, pod
from weft.inject.lingering import linger
from weft.inject.settings import InjectionSettings


def hook(result, name="web"):
    return container(result, name).get("lifecycle", {}).get("preStop")


def test_each_container_waits_as_long_as_its_proxy_drains():
    both = [{"name": "web", "image": "web:1"}, {"name": "log", "image": "log:1"}]
    result = injected(pod(containers=both))
    assert hook(result) == hook(result, "log") == {"sleep": {"seconds": 5}}


def test_a_pod_can_set_its_drain_time():
    waiting = {"proxy.istio.io/config": "terminationDrainDuration: 7500ms"}
    assert hook(injected(pod(annotations=waiting))) == {"sleep": {"seconds": 8}}
    at_once = {"proxy.istio.io/config": "terminationDrainDuration: 0s"}
    assert hook(injected(pod(annotations=at_once))) is None


def test_a_container_with_a_hook_keeps_it():
    own = {"preStop": {"exec": {"command": ["bye"]}}}
    assert hook(injected(pod(containers=[{"name": "web", "image": "web:1", "lifecycle": own}]))) == own["preStop"]


def test_a_hook_at_the_start_stays_beside_it():
    own = {"postStart": {"exec": {"command": ["hello"]}}}
    result = injected(pod(containers=[{"name": "web", "image": "web:1", "lifecycle": own}]))
    assert container(result, "web")["lifecycle"] == {**own, "preStop": {"sleep": {"seconds": 5}}}


@pytest.mark.parametrize(("grace", "seconds"), [(30, 5), (10, 5), (8, 4), (3, 1), (1, None), (0, None)])
def test_half_of_the_grace_is_left_to_the_application(grace, seconds):
    result = injected(pod(terminationGracePeriodSeconds=grace))
    assert hook(result) == (seconds and {"sleep": {"seconds": seconds}})


def test_what_ends_by_itself_is_not_kept():
    assert hook(injected(pod(restartPolicy="Never"))) is None


def test_an_installation_may_do_without():
    assert hook(injected(pod(), InjectionSettings(hold_application_while_draining=False))) is None


def test_a_second_time_changes_nothing():
    once = injected(pod())
    assert injected(once) == once
    spec = {"containers": [{"name": "web", "lifecycle": None}]}
    linger(spec, 2)
    linger(spec, 9)
    assert spec["containers"][0]["lifecycle"] == {"preStop": {"sleep": {"seconds": 2}}}
