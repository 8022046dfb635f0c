from weft.model.carried import Carried
from weft.model.destination_rule import ConnectionPool, DestinationRule, TrafficPolicy
from weft.model.inbound_port import InboundPort
from weft.model.service import Protocol

FEW, MANY = ConnectionPool(max_connections=1), ConnectionPool(max_connections=100)
RULE = DestinationRule("a", "shop", "a.shop", TrafficPolicy(connection_pool=MANY))


def test_a_sidecars_connection_pool_overrides_the_rules():
    port = InboundPort(8080, Protocol.HTTP, service_port=80, rule=RULE)
    assert port.connection_pool == MANY
    assert InboundPort(8080, Protocol.HTTP, service_port=80, rule=RULE, pool=FEW).connection_pool == FEW
    assert InboundPort(8080, Protocol.HTTP).connection_pool is None


def test_a_port_carries_the_protocols_of_all_its_services():
    assert InboundPort(8080, Protocol.TCP, others=(Protocol.HTTP,)).carried == Carried((Protocol.TCP, Protocol.HTTP))
