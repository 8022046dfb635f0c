from weft.inject.overrides import merge

OURS = {
    "name": "istio-proxy",
    "image": "weft:1",
    "args": ["a"],
    "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
    "lifecycle": {"preStop": {"exec": {"command": ["weft", "drain"]}}},
    "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsUser": 1337},
    "resources": {"limits": {"cpu": "2", "memory": "1Gi"}},
    "volumeMounts": [{"name": "s", "mountPath": "/s"}],
}


def merged(**theirs):
    return merge(OURS, {"name": "istio-proxy", **theirs})


def test_the_image_auto_overrides_nothing():
    assert merged(image="auto") == OURS
    assert merged(image="") == OURS
    assert merged(image="mine:2")["image"] == "mine:2"


def test_mappings_are_joined_and_lists_with_keys_too():
    found = merged(
        resources={"limits": {"cpu": "4"}},
        env=[{"name": "C", "value": "3"}, {"name": "A", "value": "9"}],
        volumeMounts=[{"name": "t", "mountPath": "/t"}],
    )
    assert found["resources"] == {"limits": {"cpu": "4", "memory": "1Gi"}}
    assert [each["name"] for each in found["env"]] == ["A", "B", "C"]
    assert found["env"][0] == {"name": "A", "value": "9"}
    assert [each["mountPath"] for each in found["volumeMounts"]] == ["/s", "/t"]


def test_other_lists_are_replaced():
    found = merged(args=["b", "c"], securityContext={"capabilities": {"drop": []}})
    assert found["args"] == ["b", "c"]
    assert found["securityContext"] == {"capabilities": {"drop": []}, "runAsUser": 1337}


def test_an_override_replaces_its_alternative():
    found = merged(env=[{"name": "B", "value": "x"}], lifecycle={"preStop": {"sleep": {"seconds": 9}}})
    assert found["env"][1] == {"name": "B", "value": "x"}
    assert found["lifecycle"] == {"preStop": {"sleep": {"seconds": 9}}}


def test_a_null_override_changes_nothing_and_the_result_is_a_copy():
    found = merged(lifecycle=None)
    assert found == OURS
    found["env"].clear()
    assert OURS["env"]


def test_a_pull_policy_defaulted_by_the_api_server_beside_auto_is_not_an_override():
    ours = {**OURS, "imagePullPolicy": "Never"}
    assert merge(ours, {"name": "istio-proxy", "image": "auto", "imagePullPolicy": "Always"}) == ours
    assert merge(ours, {"image": "mine", "imagePullPolicy": "Always"})["imagePullPolicy"] == "Always"
    assert merge(ours, {"imagePullPolicy": "Always"})["imagePullPolicy"] == "Always"
    assert merge(ours, {"image": "auto", "imagePullPolicy": "IfNotPresent"})["imagePullPolicy"] == "IfNotPresent"
