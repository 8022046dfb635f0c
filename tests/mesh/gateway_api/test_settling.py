from api.reading import document
from mesh.gateway_api.test_attached import HOST, SERVICE, mesh_of, put, route
from weft.api.parse import parse
from weft.mesh.gateway_api.attached import Attached
from weft.mesh.gateway_api.settling import Settling
from weft.mesh.mesh import Mesh


def test_a_batch_of_objects_is_combined_once_with_the_same_result():
    texts = (SERVICE, route("a", "/a"), route("b", "/b"))
    one, other = mesh_of(*texts), Mesh()
    with other.together():
        assert not any(touched.hosts for touched in put(other, *texts[1:]))
        put(other, SERVICE)
        assert list(other.derived()) == []
    assert other.settle().hosts == {HOST}
    assert list(other.derived()) == list(one.derived())
    assert not other.settle()


def test_unchanged_values_are_neither_removed_nor_added():
    values = [value for text in (SERVICE, route("a", "/a")) for value in parse(document(text)).values]
    attached = Attached()
    settling = Settling(attached)
    for value in values:
        attached.add(value)

    def settled():
        settling.notice(values)
        (found,) = settling.settle(lambda host, namespace: values[0], lambda reference: None)
        return [[type(each).__name__ for each in side] for side in found]

    assert settled() == [[], ["VirtualService"]]
    assert settled() == [[], []]
    attached.remove(values[1])
    assert settled() == [["VirtualService"], []]
    assert list(settling.derived()) == []


def test_parents_that_refer_to_a_removed_value_are_derived_again():
    mesh = mesh_of(SERVICE, route("a", "/a"))
    (touched,) = [mesh.apply(key, ()) for key, _ in list(mesh.values()) if key.kind == "Service"]
    assert touched.hosts == {HOST}
    assert [each.conditions[0].reason for derived in mesh.derived() for each in derived.routes] == ["NoMatchingParent"]
