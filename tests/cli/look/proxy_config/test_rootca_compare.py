import json

import pytest
from click.testing import CliRunner

from envoy_dumps import ADMIN
from weft.cli.main import app
from weft.cli.reach.interface import PodProxy

OLD, NEW = (f"-----BEGIN CERTIFICATE-----\n{each}\n-----END CERTIFICATE-----\n" for each in ("b2xk", "bmV3"))


class Reached:
    """A connection to pods with given trusted roots."""

    def __init__(self, **roots):
        self._roots = roots

    def find(self, word, namespace=""):
        return PodProxy(word, namespace or "shop")

    def admin(self, proxy, path, query=None, *, method="GET"):
        trusted = {"trusted_ca": {"inline_string": "".join(self._roots[proxy.name])}}
        secret = {"name": "ROOTCA", "secret": {"name": "ROOTCA", "validation_context": trusted}}
        section = {"@type": f"{ADMIN}.SecretsConfigDump", "dynamic_active_secrets": [secret]}
        return json.dumps({"configs": [section]}).encode()

    def close(self):
        pass


@pytest.fixture
def compared(monkeypatch):
    reached = Reached(old=[OLD], new=[NEW], both=[NEW, OLD], nothing=[])
    monkeypatch.setattr("weft.cli.reach.connect.reach", lambda *_, **__: reached)
    return lambda *pods: CliRunner().invoke(app, ["pc", "rootca-compare", *pods], prog_name="weft")


def test_one_root_in_common_is_enough(compared):
    done = compared("old", "both")
    said = "Both [old.shop] and [both.shop] have the identical ROOTCA, theoretically the connectivity between them is available\n"
    assert (done.exit_code, done.stdout) == (0, said)


def test_no_common_root_is_an_error_with_a_hint(compared):
    done = compared("old", "new")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "have the non identical ROOTCA, theoretically the connectivity between them is unavailable" in done.stderr
    assert "hint: see what each trusts: weft proxy-config secret old.shop, and new.shop" in done.stderr


def test_a_proxy_without_a_root_is_an_error(compared):
    done = compared("old", "nothing")
    assert done.exit_code == 1 and "nothing.shop has no root certificate yet" in done.stderr


@pytest.mark.root
def test_pods_of_one_mesh_trust_the_same_root(weft, mesh):
    done = weft("proxy-config", "rootca-compare", "talker-0", "talker-1", "--mesh", mesh)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Both [talker-0.shop] and [talker-1.shop] have the identical ROOTCA")
    none = weft("proxy-config", "ecds", "talker-0", "--mesh", mesh)
    assert (none.returncode, none.stdout) == (0, "ECDS NAME     TYPE\n"), none.stderr
