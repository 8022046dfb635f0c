from weft.inject.annotations import read
from weft.inject.containers import proxy, redirecting
from weft.inject.settings import InjectionSettings, ProxyResources


def wishes(settings=None, **annotations):
    said = {name.replace("__", "."): value for name, value in annotations.items()}
    return read(said, settings or InjectionSettings(), "Pod x")


def made(settings=None, *, native=True, **annotations):
    chosen = settings or InjectionSettings()
    return proxy(
        wishes(chosen, **annotations), chosen, arguments=["--x"], variables={"A": "1"}, native=native, finishes=False
    )


def test_the_proxy_runs_envoy_itself_as_a_user_of_its_own():
    container = made()
    assert container["command"] == ["envoy"]
    assert container["args"] == ["--x"]
    context = container["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (1337, 1337, True)
    assert context["readOnlyRootFilesystem"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert {"name": "A", "value": "1"} in container["env"]


def test_the_readiness_probe_follows_the_pods_annotations():
    said = {f"readiness__status__sidecar__istio__io/{name}": value for name, value in
            (("initialDelaySeconds", "2"), ("periodSeconds", "0"), ("failureThreshold", "9"))}  # fmt: skip
    found = made(**said)["readinessProbe"]
    assert (found["initialDelaySeconds"], found["periodSeconds"], found["failureThreshold"]) == (2, 1, 9)
    assert "initialDelaySeconds" not in made()["readinessProbe"]


def test_a_pull_policy_and_amounts_are_written_only_where_there_are_any():
    bare = InjectionSettings(resources=ProxyResources(), init_resources=ProxyResources())
    assert made(bare)["resources"] == {}
    assert "imagePullPolicy" not in made()
    assert made(InjectionSettings(image_pull_policy="Never"))["imagePullPolicy"] == "Never"
    assert redirecting(wishes(bare), bare)["resources"] == {}


def test_a_bad_minimum_for_draining_is_five_seconds():
    config = "proxyMetadata: {EXIT_ON_ZERO_ACTIVE_CONNECTIONS: true, MINIMUM_DRAIN_DURATION: soon}"
    container = made(**{"proxy__istio__io/config": config})
    assert container["lifecycle"]["preStop"]["exec"]["command"] == ["weft", "drain", "--until-idle", "5s"]


def test_the_redirect_container_has_the_proxys_image():
    settings = InjectionSettings(image="mirror.example/weft:1")
    container = redirecting(wishes(settings), settings)
    assert container["image"] == "mirror.example/weft:1"
    assert container["args"][0] == "iptables"
    assert "volumeMounts" not in container
