import base64
import json

import pytest

from envoy_dumps import ADMIN, dump
from weft.envoy.binary import EnvoyError
from weft.envoy.dump import CLUSTERS, SECRETS, at, items, managed_by, number, read, text, without_keys, words

# Built here, so that scanners for secrets do not report this file.
KEY = "\n".join(["-----BEGIN " + "PRIVATE KEY-----", "MC4CAQAwBQYDK2VwBCIEIN", "-----END " + "PRIVATE KEY-----", ""])


def test_finds_a_section_by_its_type_and_names_a_missing_one():
    found = dump(ClustersConfigDump={"version_info": "1"})
    assert found.section(CLUSTERS)["version_info"] == "1"
    with pytest.raises(EnvoyError, match="SecretsConfigDump") as refused:
        found.section(SECRETS)
    assert "config_dump" in refused.value.problem.hint


def test_reads_fields_in_either_spelling():
    assert at({"static_clusters": 1}, "static_clusters") == at({"staticClusters": 1}, "static_clusters") == 1
    found = read(
        json.dumps(
            {"configs": [{"@type": f"{ADMIN}.ClustersConfigDump", "staticClusters": [{"cluster": {}}]}]}
        ).encode()
    )
    assert list(found.messages(CLUSTERS, ("static_clusters", "cluster"))) == [{}]


def test_missing_fields_and_fields_of_another_type_are_empty():
    odd = {"a": [1, {"b": "c"}, "d"], "n": "12", "x": None}
    assert at(odd, "a", "b") is None and at(None, "a") is None
    assert (text(odd, "a"), text(odd, "n"), text(odd, "x", "y")) == ("", "12", "")
    assert (number(odd, "n"), number(odd, "a"), number(odd, "gone")) == (12, 0, 0)
    assert (items(odd, "a"), items(odd, "n"), words(odd, "a"), words(odd, "x")) == ([{"b": "c"}], [], ["d"], [])


@pytest.mark.parametrize("said", [b"", b"no JSON", b"[1]", b'"x"', b"\xff\xfe", b"[" * 100_000])
def test_anything_but_a_config_dump_is_an_error_with_a_hint(said):
    with pytest.raises(EnvoyError) as refused:
        read(said, where="notes.txt")
    assert "config_dump" in refused.value.problem.hint and "notes.txt" in str(refused.value)


@pytest.mark.parametrize(
    "where",
    [
        {"tls_certificate": {"private_key": {"inline_bytes": base64.b64encode(KEY.encode()).decode()}}},
        {"tlsCertificate": {"privateKey": {"inlineString": "short"}}},
        {"tls_certificate": {"password": {"inline_string": "short"}}},
        {"session_ticket_keys": {"keys": [{"inline_bytes": "c2hvcnQ="}]}},
        {"generic_secret": {"secret": {"inline_string": "short"}}},
        {"anything": {"else": [KEY]}},
        {"anything": base64.b64encode(KEY.encode()).decode()},
    ],
)
def test_private_keys_are_removed_wherever_they_are(where):
    found = dump(SecretsConfigDump={"dynamic_active_secrets": [{"name": "default", "secret": where}]})
    shown = json.dumps(found.document)
    kept = json.dumps(where)
    for secret in ("MC4CAQAwBQYDK2VwBCIEIN", "short", "c2hvcnQ=", base64.b64encode(KEY.encode()).decode()):
        assert secret not in shown, kept
    assert "redacted" in shown or "W3JlZGFjdGVkXQ==" in shown


def test_what_is_no_secret_stays():
    public = {"certificate_chain": {"inline_bytes": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t"}, "name": "default", "n": 1}
    assert without_keys(public) == public


def test_names_the_object_behind_a_resource():
    def of(path):
        return managed_by({"metadata": {"filter_metadata": {"istio": {"config": path}}}})

    assert of("/apis/networking.istio.io/v1/namespaces/shop/virtual-service/payments") == "payments.shop"
    assert of("/apis/elsewhere/v1/x") == "<unknown>"
    assert of("/apis/networking.istio.io/v1/short") == ""
    assert managed_by({}) == ""
