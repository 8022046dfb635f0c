import json

from hypothesis import given
from hypothesis import strategies as st

from weft.api.document import Document
from weft.control.contents import Contents, content_of
from weft.model.names import ObjectKey


def document(name="orders", kind="Service", line=1, metadata=None, **body):
    key = ObjectKey(kind, "shop", name)
    return Document(key, "v1", {"metadata": metadata or {"name": name}, **body}, file="a.yaml", line=line)


def digest(*documents):
    contents = Contents()
    for each in documents:
        contents.put(each)
    return contents.digest()


def test_an_object_is_told_as_it_was_written_and_without_what_a_cluster_adds():
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


def test_what_a_process_is_given_is_not_kept():
    spec = {"command": ["run", "--password=p"], "env": {"TOKEN": "t"}, "replicas": 2}
    assert json.loads(content_of(document(kind="Workload", spec=spec)))["spec"] == {"replicas": 2}


def test_what_cannot_be_written_is_told_by_its_name():
    deep = {}
    deep["again"] = deep
    assert json.loads(content_of(document(spec=deep))) == json.loads(content_of(document()))


def test_the_digest_is_of_what_is_said_and_not_of_where_or_in_which_order():
    one, other = document("a", spec={"x": 1, "y": 2}), document("b", spec={})
    assert digest(one, other) == digest(other, document("a", line=9, spec={"y": 2, "x": 1}))
    assert digest(one, other) != digest(one)
    assert digest(one) != digest(document("b", spec={"x": 1, "y": 2}))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 2) | st.none())))
def test_a_digest_is_that_of_what_is_left_whatever_was_there_before(changes):
    contents, left = Contents(), {}
    for name, value in changes:
        left.pop(name, None)
        if value is None:
            contents.drop(ObjectKey("Service", "shop", name))
        else:
            left[name] = document(name, spec={"value": value})
            contents.put(left[name])
    assert contents.digest() == digest(*left.values())
