"""The agent gets the volumes and capabilities that it needs, and no more."""

from weft.install import node
from weft.install.values import values_of


def pod(**given):
    return node.daemon_set(values_of(given))["spec"]["template"]["spec"]


def capabilities(spec):
    return spec["containers"][0]["securityContext"]["capabilities"]


def test_it_is_not_privileged_and_has_three_capabilities():
    spec = pod()
    assert capabilities(spec) == {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]}
    assert "privileged" not in spec["containers"][0]["securityContext"]
    assert not {"hostPID", "hostNetwork", "hostIPC"} & set(spec)


def test_it_has_more_only_where_it_sets_up_the_redirect():
    spec = pod(injection={"redirectBy": "node"})
    assert {"NET_ADMIN", "SYS_ADMIN"} <= set(capabilities(spec)["add"])
    assert spec["hostPID"]
    assert "--redirect" in spec["containers"][0]["args"]
    assert "--redirect" not in pod()["containers"][0]["args"]


def test_it_has_no_token_for_the_api_server_but_one_for_the_ca():
    spec = pod()
    assert spec["automountServiceAccountToken"] is False
    token = next(each for each in spec["volumes"] if each["name"] == "token")
    assert [each["serviceAccountToken"]["audience"] for each in token["projected"]["sources"]] == ["istio-ca"]


def test_it_is_on_every_machine():
    assert pod()["tolerations"] == [{"operator": "Exists"}]
    assert pod()["nodeSelector"] == {"kubernetes.io/os": "linux"}


def test_kubelets_directories_are_mounted_where_kubelet_has_them():
    spec = pod(node={"kubeletRoot": "/k"}, revision="a")
    mounts = {each["name"]: each["mountPath"] for each in spec["containers"][0]["volumeMounts"]}
    paths = {each["name"]: each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each}
    assert paths == {name: mounts[name] for name in paths}
    assert paths["plugin"] == "/k/plugins/a.csi.weft.dev"
    assert {paths["pods"], paths["registration"]} == {"/k/pods", "/k/plugins_registry"}


def test_each_revision_keeps_its_state_apart():
    assert node.state_directory(values_of({})) != node.state_directory(values_of({"revision": "a"}))


def test_the_driver_gives_ephemeral_volumes_with_a_token_of_the_ca():
    driver = node.csi_driver(values_of({"revision": "a"}))
    assert driver["metadata"]["name"] == "a.csi.weft.dev"
    assert driver["spec"]["tokenRequests"] == [{"audience": "istio-ca"}]
    assert driver["spec"]["volumeLifecycleModes"] == ["Ephemeral"]
    assert driver["spec"]["requiresRepublish"]


def test_its_account_has_no_role():
    from weft.install.rbac import roles

    subjects = [each["name"] for role in roles(values_of({})) for each in role.get("subjects", ())]
    assert set(subjects) == {"weft-control"}
    assert node.service_account(values_of({}))["metadata"]["name"] not in subjects


def test_the_arguments_contain_the_certificate_lifetime():
    assert "--certificate-ttl=24h" in pod()["containers"][0]["args"]
    assert "--certificate-ttl=15m" in pod(node={"certificateTtl": "15m"})["containers"][0]["args"]


def test_the_command_knows_every_argument():
    from weft.cli.commands import by_name
    from weft.cli.lazy_commands import load

    values = values_of({"injection": {"redirectBy": "node"}, "control": {"plaintextXds": True}})
    command, *flags = node.arguments(values)
    known = {name for option in load(by_name()[command]).params for name in option.opts}
    assert {flag.partition("=")[0] for flag in flags} <= known


def test_it_knows_the_trust_domain_that_the_mesh_has():
    arguments = pod(mesh={"trustDomain": "example.org"})["containers"][0]["args"]
    assert "--trust-domain=example.org" in arguments


def test_the_cleanup_mounts_the_parents_of_the_directories_that_the_agent_created():
    agent = node.daemon_set(values_of({"revision": "a", "node": {"kubeletRoot": "/k", "nodeSelector": {"x": "y"}}}))
    assert node.directories(agent) == ["/run/weft/a", "/k/plugins/a.csi.weft.dev"]
    made = node.cleanup(agent, [{"name": "pull"}])
    spec = made["spec"]["template"]["spec"]
    assert [each["hostPath"]["path"] for each in spec["volumes"]] == ["/run", "/k/plugins"]
    (init,) = spec["initContainers"]
    assert init["args"] == [
        *("clean", "/host/0/weft/a", "/host/1/a.csi.weft.dev"),
        *("--if-empty", "/host/0/weft"),
    ]
    assert [each["mountPath"] for each in init["volumeMounts"]] == ["/host/0", "/host/1"]
    assert init["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert init["image"] == agent["spec"]["template"]["spec"]["containers"][0]["image"]
    assert spec["nodeSelector"]["x"] == "y" and spec["tolerations"] == [{"operator": "Exists"}]
    assert "volumeMounts" not in spec["containers"][0]
    assert made["metadata"]["name"] != agent["metadata"]["name"]
    assert made["spec"]["selector"] != agent["spec"]["selector"]
