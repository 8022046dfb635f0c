import json

import pytest

from weft.envoy import front_door
from weft.envoy.binary import find
from weft.envoy.front_door import HostPort

DOORS = (HostPort("127.0.0.1", 8443, ("10001/published-443.sock",)), HostPort("::1", 80))


def test_each_listener_leads_to_the_sockets_of_its_gateway_and_sends_a_proxy_header():
    files = front_door.files("/run/x", DOORS)
    assert list(files)[-2:] == ["clusters.json", "listeners.json"]  # the cluster of a listener is written first
    listener = json.loads(files["listeners.json"])["resources"][0]
    assert listener["address"] == {"socket_address": {"address": "127.0.0.1", "port_value": 8443}}
    assert listener["enable_reuse_port"] is False
    cluster = json.loads(files["clusters.json"])["resources"][0]
    assert cluster["transport_socket"]["typed_config"]["config"] == {"version": "V2"}
    (assignment,) = json.loads(files["sockets-127.0.0.1_8443.json"])["resources"]
    (endpoint,) = assignment["endpoints"][0]["lb_endpoints"]
    assert endpoint["endpoint"]["address"]["pipe"]["path"] == "10001/published-443.sock"


def test_another_pod_changes_neither_listeners_nor_clusters():
    before = front_door.files("/run/x", DOORS[:1])
    after = front_door.files("/run/x", [HostPort("127.0.0.1", 8443, ("10001/published-443.sock", "10002/x.sock"))])
    assert {name for name in before if before[name] != after[name]} == {"sockets-127.0.0.1_8443.json"}


def test_its_admin_api_is_no_port_of_the_machine():
    assert json.loads(front_door.bootstrap("/run/x"))["admin"]["address"]["pipe"]["path"] == "/run/x/admin.sock"


@pytest.mark.timeout(60)
def test_envoy_accepts_the_generated_files(tmp_path):
    import subprocess

    document = json.loads(front_door.bootstrap(str(tmp_path)))
    found = {name: json.loads(text)["resources"] for name, text in front_door.files(str(tmp_path), DOORS).items()}
    for name, text in front_door.files(str(tmp_path), DOORS).items():
        (tmp_path / name).write_text(text)
    # `envoy --mode validate` does not read xDS files, so their resources are validated as static resources.
    del document["dynamic_resources"]
    strip = [{k: v for k, v in each.items() if k != "@type"} for each in found["clusters.json"]]
    doors = [{k: v for k, v in each.items() if k != "@type"} for each in found["listeners.json"]]
    document["static_resources"] = {"clusters": strip, "listeners": doors}
    (tmp_path / "all.json").write_text(json.dumps(document))
    done = subprocess.run(
        [find(), "--mode", "validate", "-c", tmp_path / "all.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
