"""The control plane's objects. A real API server checks that its pod complies with `restricted`."""

from weft.install import control
from weft.install.values import values_of


def pod(**given):
    return control.deployment(values_of(given))["spec"]["template"]["spec"]


def test_the_arguments_contain_namespace_and_revision():
    arguments = control.arguments(values_of({"revision": "a", "namespace": "mesh"}))
    assert arguments[:2] == ["control", "--kubernetes"]
    assert {"--namespace=mesh", "--revision=a"} <= set(arguments)


def test_no_replica_ends_before_its_replacement_is_ready():
    spec = control.deployment(values_of({}))["spec"]
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    assert control.budget(values_of({}))["spec"]["minAvailable"] == 1
    assert spec["replicas"] == 2


def test_the_service_selects_the_pods_of_its_own_revision_alone():
    values = values_of({"revision": "a"})
    chosen = control.service(values)["spec"]["selector"]
    labels = control.deployment(values)["spec"]["template"]["metadata"]["labels"]
    assert chosen.items() <= labels.items()
    assert chosen["istio.io/rev"] == "a"


def test_the_ports_are_istiods():
    ports = {each["port"]: each["targetPort"] for each in control.service(values_of({}))["spec"]["ports"]}
    assert ports == {15012: 15012, 15014: 15014, 443: 15017}


def test_the_port_without_tls_is_listed_only_if_it_is_open():
    for chosen in (False, True):
        values = values_of({"control": {"plaintextXds": chosen}})
        (container,) = control.deployment(values)["spec"]["template"]["spec"]["containers"]
        ports = control.service(values)["spec"]["ports"], container["ports"]
        assert [any(each["name"] == "grpc-xds" for each in listed) for listed in ports] == [chosen, chosen]


def test_the_control_plane_never_gets_a_proxy():
    labels = control.deployment(values_of({}))["spec"]["template"]["metadata"]["labels"]
    assert labels["sidecar.istio.io/inject"] == "false"


def test_requests_and_limits_are_set_and_can_be_chosen():
    resources = pod(control={"resources": {"limits": {"cpu": 3}}})["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": 3, "memory": "1Gi"}
    assert set(pod()["containers"][0]["resources"]["requests"]) == {"cpu", "memory"}


def test_tolerations_and_selectors_are_there_only_if_chosen():
    assert "tolerations" not in pod()
    assert pod(control={"nodeSelector": {"a": "b"}})["nodeSelector"] == {"a": "b"}


def test_an_own_ca_is_mounted_if_its_secret_exists():
    volume = next(each for each in pod(ca={"secret": "mine"})["volumes"] if each["name"] == "cacerts")
    assert volume["secret"]["secretName"] == "mine"
    assert volume["secret"]["optional"]


def test_pull_secrets_come_with_the_account():
    account = control.service_account(values_of({"imagePullSecrets": ["a"]}))
    assert account["imagePullSecrets"] == [{"name": "a"}]
    assert "imagePullSecrets" not in control.service_account(values_of({}))


def test_the_command_knows_every_argument():
    from weft.cli.commands import by_name
    from weft.cli.lazy_commands import load

    values = values_of({"injection": {"redirectBy": "node"}, "control": {"plaintextXds": True}})
    command, *flags = control.arguments(values)
    known = {name for option in load(by_name()[command]).params for name in option.opts}
    assert {flag.partition("=")[0] for flag in flags} <= known


def test_an_eviction_leaves_one_replica():
    budget, deployment = control.budget(values_of({})), control.deployment(values_of({}))
    assert budget["spec"] == {"minAvailable": 1, "selector": deployment["spec"]["selector"]}
    assert deployment["spec"]["replicas"] == 2
