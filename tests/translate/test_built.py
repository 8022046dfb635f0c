from envoy.config.cluster.v3.cluster_pb2 import Cluster

from weft.translate.built import build, from_parts


def test_equal_content_has_an_equal_version():
    one, same, other = build("a", Cluster(name="a")), build("a", Cluster(name="a")), build("a", Cluster(name="b"))
    assert one.version == same.version != other.version
    assert one.type_url == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert Cluster.FromString(one.body).name == "a"


def test_what_a_large_body_was_joined_of_is_kept():
    large, small = from_parts("m", "a", [b"x" * 4000, b"y" * 4000]), from_parts("m", "a", [b"x", b"y"])
    assert b"".join(large.parts) == large.body
    assert small.body == b"xy"
    assert small.parts == ()
