from envoy.config.cluster.v3.cluster_pb2 import Cluster

from weft.translate.built import build


def test_equal_content_has_an_equal_version():
    one, same, other = build("a", Cluster(name="a")), build("a", Cluster(name="a")), build("a", Cluster(name="b"))
    assert one.version == same.version != other.version
    assert one.type_url == "type.googleapis.com/envoy.config.cluster.v3.Cluster"
    assert Cluster.FromString(one.body).name == "a"
