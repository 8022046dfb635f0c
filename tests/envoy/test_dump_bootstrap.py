from envoy_dumps import dump
from weft.envoy.dump_bootstrap import bootstrap, versions


def test_shows_the_versions_of_the_mesh_and_of_envoy():
    build = {
        "version": {"major_number": 1, "minor_number": 40},
        "metadata": {"revision.status": "Clean", "build.label": "dev"},
    }
    node = {
        "metadata": {"ISTIO_VERSION": "1.30.3", "ISTIO_PROXY_SHA": "istio-proxy:abc"},
        "user_agent_build_version": build,
    }
    section = bootstrap(dump(BootstrapConfigDump={"bootstrap": {"node": node}}))
    assert versions(section) == [
        ("Istio Version:", "1.30.3"),
        ("Istio Proxy Version:", "abc"),
        ("Envoy Version:", "1.40.0-dev/Clean"),
    ]


def test_missing_versions_are_left_out():
    assert versions({}) == [("Envoy Version:", "0.0.0")]
