from datetime import timedelta

from envoy.config.route.v3.route_components_pb2 import Route
from envoy.extensions.filters.http.cors.v3.cors_pb2 import CorsPolicy as EnvoyCors
from envoy.extensions.filters.http.fault.v3.fault_pb2 import HTTPFault

from translate.views import route
from weft.model.virtual_service import Abort, CorsPolicy, Delay, DirectResponse, Fault, MatchKind, Redirect, StringMatch
from weft.translate.filters import CORS, FAULT, MARK, enable, inbound_filters, outbound_filters


def _enabled(**written):
    result = Route()
    enable(result, route(**written))
    return result.typed_per_filter_config


def test_only_the_router_is_enabled_for_every_request():
    assert [entry.name for entry in outbound_filters() if not entry.disabled] == ["envoy.filters.http.router"]
    assert [entry.name for entry in inbound_filters()] == ["envoy.filters.http.router"]


def test_a_fault_that_affects_no_request_is_not_enabled():
    assert not _enabled(fault=Fault(delay=Delay(timedelta(seconds=1))))
    assert not _enabled()


def test_aborts_have_the_configured_status():
    config = _enabled(fault=Fault(abort=Abort(grpc_status="UNAVAILABLE", percentage=50)))[FAULT]
    assert HTTPFault.FromString(config.value).abort.grpc_status == 14
    config = _enabled(fault=Fault(abort=Abort(http_status=503, percentage=0.01)))[FAULT]
    abort = HTTPFault.FromString(config.value).abort
    assert (abort.http_status, abort.percentage.numerator) == (503, 100)


def test_unmatched_preflights_are_forwarded_unless_ignored():
    origins = (StringMatch(MatchKind.EXACT, "*"),)
    forwarded = _enabled(cors=CorsPolicy(allow_origins=origins, max_age=timedelta(hours=24)))[CORS]
    read = EnvoyCors.FromString(forwarded.value)
    assert read.forward_not_matching_preflights.value and read.max_age == "86400"
    ignored = _enabled(cors=CorsPolicy(allow_origins=origins, unmatched_preflights="IGNORE"))[CORS]
    assert not EnvoyCors.FromString(ignored.value).forward_not_matching_preflights.value


def test_only_routes_without_an_upstream_mark_their_requests():
    assert MARK in _enabled(direct_response=DirectResponse(200))
    assert MARK in _enabled(redirect=Redirect(uri="/new"))
    assert MARK not in _enabled(fault=Fault(abort=Abort(http_status=503, percentage=50)))
