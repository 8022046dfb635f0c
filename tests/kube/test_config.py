import base64
import os
import re

import pytest
import yaml

from weft.kube.config import ApiConnection, contexts, from_kubeconfig, in_cluster, load
from weft.kube.error import ConfigError


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def kubeconfig(path, *, user=None, cluster=None, context=None, **more):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "here", "cluster": {"server": "https://10.0.0.1:6443", **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {}}],
        "contexts": [{"name": "work", "context": {"cluster": "here", "user": "me", **(context or {})}}],
        "current-context": "work",
        **more,
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    """Neither a pod nor a home with a kubeconfig."""
    for variable in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def test_reads_embedded_data(tmp_path):
    file = kubeconfig(
        tmp_path / "config",
        cluster={"certificate-authority-data": encoded("CA"), "tls-server-name": "kubernetes"},
        user={"client-certificate-data": encoded("CERT"), "client-key-data": encoded("KEY")},
        context={"namespace": "shop"},
    )
    found = load(file)
    assert found.server == "https://10.0.0.1:6443"
    assert (found.ca_data, found.client_certificate, found.client_key) == ("CA", "CERT", "KEY")
    assert (found.namespace, found.server_name) == ("shop", "kubernetes")
    assert found.source == f"{file}, context work"


def test_contexts_are_listed(tmp_path, monkeypatch):
    file = kubeconfig(tmp_path / "config")
    assert contexts(file) == ["work"]
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'none'}:{file}")
    assert contexts() == ["work"]
    monkeypatch.delenv("KUBECONFIG")
    assert contexts() == []


def test_files_are_found_beside_the_kubeconfig(tmp_path):
    for name in ("ca.crt", "me.crt", "me.key", "token"):
        (tmp_path / name).write_text(name)
    file = kubeconfig(
        tmp_path / "config",
        cluster={"certificate-authority": "ca.crt"},
        user={"client-certificate": "me.crt", "client-key": str(tmp_path / "me.key"), "tokenFile": "./token"},
    )
    found = load(file)
    assert found.ca_file == str(tmp_path / "ca.crt")
    assert found.client_key_file == str(tmp_path / "me.key")
    assert (tmp_path / "token").samefile(found.token_file)


def test_another_context_can_be_chosen_and_a_misspelled_one_is_guessed(tmp_path):
    contexts = [
        {"name": "work", "context": {"cluster": "here", "user": "me"}},
        {"name": "production", "context": {"cluster": "here", "user": "me", "namespace": "live"}},
    ]
    file = kubeconfig(tmp_path / "config", contexts=contexts)
    assert load(file).namespace == "default"
    assert load(file, "production").namespace == "live"
    with pytest.raises(ConfigError, match=r"no context `productoin` \(hint: did you mean `production`\?\)"):
        load(file, "productoin")


def test_several_files_are_merged_and_the_first_of_a_name_is_taken(tmp_path, monkeypatch):
    one = kubeconfig(tmp_path / "one", user={"token": "first"})
    two = kubeconfig(
        tmp_path / "two",
        user={"token": "second"},
        contexts=[{"name": "other", "context": {"cluster": "here", "user": "me", "namespace": "two"}}],
    )
    monkeypatch.setenv("KUBECONFIG", os.pathsep.join([str(tmp_path / "missing"), str(one), str(two)]))
    assert load().token == "first"
    assert (load(context="other").namespace, load(context="other").token) == ("two", "first")


def test_the_home_directory_comes_last(tmp_path):
    with pytest.raises(
        ConfigError,
        match=r"\.kube/config: error: there is no kubeconfig, and weft does not run in a pod \(hint: .*--kubeconfig",
    ):
        load()
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    kubeconfig(tmp_path / "home" / ".kube" / "config", user={"token": "mine"})
    assert load().token == "mine"


def account(tmp_path, monkeypatch, host="10.96.0.1"):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    for name, text in (("token", "abc"), ("ca.crt", "CA"), ("namespace", "shop\n")):
        (tmp_path / name).write_text(text)
    return tmp_path


def test_a_pod_uses_its_account(tmp_path, monkeypatch):
    found = in_cluster(account(tmp_path, monkeypatch))
    assert found.server == "https://10.96.0.1:443"
    assert (found.namespace, found.token_file, found.ca_file) == (
        "shop",
        str(tmp_path / "token"),
        str(tmp_path / "ca.crt"),
    )


def test_an_address_of_version_6_is_written_in_brackets(tmp_path, monkeypatch):
    assert in_cluster(account(tmp_path, monkeypatch, "fd00::1")).server == "https://[fd00::1]:443"


def test_a_pod_without_a_mounted_service_account_raises_with_a_hint(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    with pytest.raises(ConfigError, match="automountServiceAccountToken"):
        in_cluster(tmp_path)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST")
    with pytest.raises(ConfigError, match="does not run in a pod"):
        in_cluster(tmp_path)


def test_in_a_pod_a_named_kubeconfig_is_still_preferred(tmp_path, monkeypatch):
    account(tmp_path, monkeypatch)
    file = kubeconfig(tmp_path / "config", user={"token": "mine"})
    assert load(file).token == "mine"
    monkeypatch.setenv("KUBECONFIG", str(file))
    assert load().token == "mine"


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (
            {"cluster": {"server": "10.0.0.1:6443"}},
            "not the address of an API server (hint: server: https://HOST:PORT)",
        ),
        ({"cluster": {"certificate-authority": "missing.crt"}}, "missing.crt, which does not exist"),
        ({"cluster": {"certificate-authority-data": "%%%"}}, "certificate-authority-data is not base64-encoded PEM"),
        (
            {"cluster": {"certificate-authority-data": encoded("CA"), "insecure-skip-tls-verify": True}},
            "remove one",
        ),
        ({"user": {"client-certificate-data": encoded("CERT")}}, "the key is missing"),
        ({"user": {"client-key-data": encoded("KEY")}}, "the certificate is missing"),
        ({"user": {"username": "me", "password": "secret"}}, "no longer supports (hint: use an exec plugin"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "an auth-provider, which Kubernetes itself no longer supports"),
        ({"user": {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}}}, "not supported"),
        (
            {
                "user": {
                    "exec": {
                        "command": "x",
                        "apiVersion": "client.authentication.k8s.io/v1",
                        "interactiveMode": "Always",
                    }
                }
            },
            "needs a terminal",
        ),
        ({"user": {"as-groups": ["admins"]}}, "have no effect without `as`"),
        ({"current-context": ""}, "no current context (hint: choose one"),
        ({"users": []}, "there is no user `me`"),
        ({"clusters": "x"}, "is not a kubeconfig: Expected `array`"),
    ],
)
def test_unsupported_settings_are_rejected_with_the_file(tmp_path, changes, says):
    file = kubeconfig(tmp_path / "config", **changes)
    with pytest.raises(ConfigError, match=re.escape(says)) as refused:
        load(file)
    assert str(file) in str(refused.value)


@pytest.mark.parametrize("text", ["a: [", "\x00", "- a", "just words"])
def test_a_file_that_is_no_kubeconfig_is_rejected(tmp_path, text):
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match="config: error: "):
        load(tmp_path / "config")


def test_no_message_and_no_print_shows_a_secret(tmp_path):
    (tmp_path / "config").write_text("users: [{name: me, user: {token: s3cret\n")
    with pytest.raises(ConfigError) as refused:
        load(tmp_path / "config")
    assert "s3cret" not in str(refused.value)
    assert "s3cret" not in repr(ApiConnection(server="https://x", token="s3cret", client_key="s3cret"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="nowhere: error: there is no such file"):
        from_kubeconfig([tmp_path / "nowhere"])


def test_impersonation_becomes_headers(tmp_path):
    file = kubeconfig(
        tmp_path / "config", user={"as": "jane", "as-groups": ["a", "b"], "as-user-extra": {"why": ["x"]}}
    )
    assert load(file).impersonate == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-why", "x"),
    )


def test_a_plugin_is_found_on_the_path_or_beside_the_kubeconfig(tmp_path):
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws", "args": ["token"], "env": None}
    assert load(kubeconfig(tmp_path / "config", user={"exec": plugin})).exec_plugin.command == "aws"
    plugin["command"] = "./plugin"
    assert load(kubeconfig(tmp_path / "config", user={"exec": plugin})).exec_plugin.command == str(tmp_path / "plugin")
