from weft.model.service import Service, ServicePort
from weft.model.value import as_it_is


def test_the_default_admission_changes_nothing():
    service = Service("web.shop.svc.cluster.local", "web", "shop", (ServicePort("http", 80),))
    assert as_it_is(service) is service
