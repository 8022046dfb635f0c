import json
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Authority
from weft.api.document import Document
from weft.api.parse import parse
from weft.history.object_texts import Contents, content_of, document_of
from weft.model.credential import HIDDEN
from weft.model.names import ObjectKey


def document(name="orders", kind="Service", line=1, metadata=None, **body):
    key = ObjectKey(kind, "shop", name)
    return Document(key, "v1", {"metadata": metadata or {"name": name}, **body}, file="a.yaml", line=line)


def digest(*documents):
    contents = Contents()
    for each in documents:
        contents.put(each)
    return contents.digest()


def test_an_object_is_shown_as_written_without_the_fields_that_a_cluster_adds():
    metadata = {
        "name": "orders",
        "labels": {"app": "orders"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{…}", "team": "blue"},
        "uid": "1",
        "managedFields": [{}],
    }
    contents = Contents()
    contents.put(document(metadata=metadata, spec={"ports": [{"port": 80}]}, status={"loadBalancer": {}}))
    ((key, said),) = contents
    assert key == ObjectKey("Service", "shop", "orders")
    assert said == {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "orders",
            "namespace": "shop",
            "labels": {"app": "orders"},
            "annotations": {"team": "blue"},
        },
        "spec": {"ports": [{"port": 80}]},
    }


def test_the_command_and_environment_of_a_workload_are_not_stored():
    spec = {"command": ["run", "--password=p"], "env": {"TOKEN": "t"}, "replicas": 2}
    said, whole = content_of(document(kind="Workload", spec=spec))
    assert json.loads(said)["spec"] == {"replicas": 2}
    assert json.loads(whole)["spec"] == spec


def test_a_private_jwk_is_not_stored_but_changes_the_digest():
    def rule(secret):
        keys = json.dumps(
            {"keys": [{"kty": "oct", "kid": "k", "k": secret}, {"kty": "RSA", "n": "public", "d": secret}]}
        )
        return document(kind="RequestAuthentication", spec={"jwtRules": [{"jwks": keys}]})

    said = content_of(rule("c2VjcmV0"))[0].decode()
    assert "c2VjcmV0" not in said and "public" in said
    kept = json.loads(json.loads(said)["spec"]["jwtRules"][0]["jwks"])
    assert [each["kty"] for each in kept["keys"]] == ["oct", "RSA"]
    assert digest(rule("c2VjcmV0")) != digest(rule("b3RoZXI"))


def test_an_object_that_cannot_be_encoded_is_stored_by_its_name():
    deep = {}
    deep["again"] = deep
    assert content_of(document(spec=deep)) == content_of(document())


def test_the_digest_is_of_what_is_said_and_not_of_where_or_in_which_order():
    one, other = document("a", spec={"x": 1, "y": 2}), document("b", spec={})
    assert digest(one, other) == digest(other, document("a", line=9, spec={"y": 2, "x": 1}))
    assert digest(one, other) != digest(one)
    assert digest(one) != digest(document("b", spec={"x": 1, "y": 2}))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2) | st.none())))
def test_the_digest_depends_only_on_the_current_objects(changes):
    contents, left = Contents(), {}
    for name, value in changes:
        left.pop(name, None)
        if value is None:
            contents.drop(ObjectKey("Service", "shop", name))
        else:
            left[name] = document(name, spec={"value": value})
            contents.put(left[name])
    assert contents.digest() == digest(*left.values())


def test_only_public_certificates_of_a_secret_are_stored():
    held = {"tls.crt": "Q0VSVA==", "tls.key": "U0VDUkVU", "password": "U0VDUkVU"}
    contents = Contents()
    contents.put(document(kind="Secret", type="kubernetes.io/tls", data=held, stringData={"key": "SECRET"}))
    ((_, said),) = contents
    assert "U0VDUkVU" not in str(said) and "SECRET" not in str(said)
    assert said["data"]["tls.crt"] == "Q0VSVA==" and said["data"].keys() == held.keys()
    other = {**held, "tls.key": "T1RIRVI="}
    assert digest(document(kind="Secret", data=held)) != digest(document(kind="Secret", data=other))


def test_a_key_in_a_certificate_entry_is_not_stored():
    shown = Authority().issue("shop.example.com")
    both = shown.certificate + shown.key
    for field, value in (("data", b64encode(both).decode()), ("stringData", both.decode())):
        said, _ = content_of(document(kind="Secret", **{field: {"tls.crt": value, "ca.crt": value}}))
        shown_of = b64encode(shown.certificate).decode() if field == "data" else shown.certificate.decode()
        assert json.loads(said)[field] == {"tls.crt": shown_of, "ca.crt": shown_of}


@pytest.mark.parametrize("value", ["not base64!", "", 5, None])
def test_a_secret_that_cannot_be_parsed_is_still_recorded(value):
    said, _ = content_of(document(kind="Secret", data={"tls.crt": value}))
    assert json.loads(said)["data"].keys() == {"tls.crt"}


def test_a_secrets_past_can_be_read_again_without_its_key():
    shown = Authority().issue("shop.example.com")
    data = {"tls.crt": b64encode(shown.certificate).decode(), "tls.key": b64encode(shown.key).decode()}
    contents = Contents()
    contents.put(document(kind="Secret", type="kubernetes.io/tls", data=data))
    (kept,) = contents.all_said().values()
    (found,) = parse(document_of(ObjectKey("Secret", "shop", "orders"), kept)).values
    assert (found.chain, found.private_key, found.hosts) == (shown.certificate, HIDDEN, ("shop.example.com",))
