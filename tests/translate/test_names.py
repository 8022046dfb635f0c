from weft.translate import names


def test_names_are_istios():
    assert names.outbound_cluster("a.shop", 80) == "outbound|80||a.shop"
    assert names.outbound_cluster("a.shop", 80, "v1") == "outbound|80|v1|a.shop"
    assert names.inbound_cluster(8080) == "inbound|8080||"
    assert names.listener("10.0.0.1", 80) == "10.0.0.1_80"
    assert names.server_name("a.shop", 80, "v1") == "outbound_.80_.v1_.a.shop"
    assert names.server_name("a.shop", 80) == "outbound_.80_._.a.shop"
