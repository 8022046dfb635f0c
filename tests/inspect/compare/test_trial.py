from datetime import UTC, datetime

import pytest
from tests.inspect.test_stage import shop

from model.builders import instance, service
from weft.api.request_test import RequestCase
from weft.base.problem import Where
from weft.history.history import History
from weft.inspect.ask.question import Question
from weft.inspect.compare.trial import Always, Culprit, culprit, every_call, judged, try_case
from weft.inspect.stage import NoSuchWorkload, Stage
from weft.model.instance import Instance
from weft.model.names import ObjectKey
from weft.model.settings import Settings

NOW = datetime(2026, 11, 16, tzinfo=UTC)
PAYMENTS = ObjectKey("Service", "shop", "payments")


def case(caller="orders", to="http://payments/", **more):
    return RequestCase(Where(), caller, to, "shop", **more)


def test_a_case_with_the_expected_outcome_has_no_differences():
    assert try_case(Stage(shop()), case(verdict="allowed", workload="payments"), NOW).wrong == ()
    assert try_case(Stage(shop()), case(verdict="denied"), NOW).wrong


def test_a_request_that_cannot_be_resolved_is_wrong_with_the_reason():
    (said,) = try_case(Stage(shop()), case("odrers", verdict="allowed"), NOW).wrong
    assert said == "there is no workload or pod `odrers` (did you mean `orders`?)"
    assert "the scheme `ftp` is not supported" in try_case(Stage(shop()), case(to="ftp://x"), NOW).wrong[0]
    assert "invalid ipv6 url" in try_case(Stage(shop()), case(to="http://[::1"), NOW).wrong[0]
    assert "not an HTTP method" in try_case(Stage(shop()), case(method="GE T"), NOW).wrong[0]


def test_a_port_that_the_service_does_not_have_is_not_allowed():
    (said,) = try_case(Stage(shop()), case(to="http://payments:81/", verdict="allowed"), NOW).wrong
    assert said == "expected to be allowed, but it is failed: payments has no port 81 (it has 80)"
    assert try_case(Stage(shop()), case(to="https://payments/", verdict="failed"), NOW).wrong == ()


def test_a_request_is_judged_by_its_possible_outcomes():
    found = judged(Stage(shop()), case(), NOW)
    assert found.ways[0].startswith("delivered: outbound|80||payments.shop.svc.cluster.local as GET payments/")
    assert found.explanation.verdict.workload == "payments-0.shop"
    unasked = judged(Stage(shop()), case("nobody"), NOW)
    assert (unasked.ways, unasked.explanation) == (("there is no workload or pod `nobody`",), None)


def test_every_group_calls_every_http_port_up_to_the_limit():
    calls = [str(each) for each in every_call(Stage(shop()), 100)]
    assert "frontend-0.shop GET http://payments.shop.svc.cluster.local:80/" in calls
    assert len(calls) == 3
    assert len(list(every_call(Stage(shop()), 2))) == 2


def test_one_pod_without_a_proxy_stands_for_all_of_them():
    apart = instance("ancient-0", "ancient", address="10.244.0.8", namespace="apart", workload="ancient")
    bare = [instance(f"bare-{index}", "bare", address=f"10.244.1.{index}", workload="bare") for index in range(2)]
    assert Stage(shop(apart, *bare)).without_proxy() == ["bare-0.shop", "bare-1.shop", "ancient-0.apart"]
    first, *others = [each.caller for each in every_call(Stage(shop(apart, *bare)), 100)]
    assert first == "bare-0.shop"
    assert sorted(others) == ["frontend-0.shop", "orders-0.shop", "payments-0.shop"]


def test_the_change_that_changed_an_outcome_is_found():
    mesh = shop()
    mesh.apply(PAYMENTS, ())
    history = History(mesh, Settings(), clock=lambda: 1.0)
    history.seal()

    def change(key, *values):
        before = mesh.get(key)
        mesh.apply(key, values)
        history.note(key, before, mesh.get(key))
        history.seal()

    change(PAYMENTS, service("payments", addresses=("10.96.0.7",)))
    change(ObjectKey("Service", "shop", "other"), service("other", addresses=("10.96.0.8",)))
    found = culprit(history.past(), Question("orders", "http://payments/"), NOW)
    assert (found.moment.number, found.before) == (1, ("failed: payments does not resolve",))
    assert culprit(history.past(), Question("orders", "http://nobody/"), NOW) == Always(
        None, ("failed: nobody does not resolve",)
    )
    with pytest.raises(NoSuchWorkload):
        culprit(history.past(), Question("nobody", "http://payments/"), NOW)


class Starting:
    """A mesh that starts: its written objects exist, and its pods are added, each in a separate moment."""

    def __init__(self):
        self.mesh = shop()
        self.pods = {
            values[0].name: (key, values[0]) for key, values in self.mesh.values() if isinstance(values[0], Instance)
        }
        for key, _ in self.pods.values():
            self.mesh.apply(key, ())
        times = iter(range(1000, 100_000, 1000))
        self.history = History(self.mesh, Settings(), clock=lambda: float(next(times)))
        self.history.seal()
        for key, pod in self.pods.values():
            self.change(key, pod)

    def change(self, key, *values):
        before = self.mesh.get(key)
        self.mesh.apply(key, values)
        self.history.note(key, before, self.mesh.get(key))
        self.history.seal()

    def asked(self, caller="orders"):
        return culprit(self.history.past(), Question(caller, "http://payments/"), NOW)


def test_pods_added_while_a_mesh_starts_are_not_the_cause():
    mesh = Starting()
    assert len(mesh.history.moments()) == len(mesh.pods) == 3
    found = mesh.asked()
    assert isinstance(found, Always) and found.moment.at == 3000.0 and found.after[0].startswith("delivered")
    mesh.change(ObjectKey("Service", "shop", "other"), service("other", addresses=("10.96.0.8",)))
    assert mesh.asked() == found


def test_a_removed_pod_is_the_cause_even_if_nothing_else_changed():
    mesh = Starting()
    mesh.change(mesh.pods["payments-0"][0])
    found = mesh.asked()
    assert isinstance(found, Culprit) and found.moment.number == 4 and found.before[0].startswith("delivered")


def test_for_a_caller_added_later_the_outcome_never_changed():
    mesh = Starting()
    mesh.change(ObjectKey("Service", "shop", "other"), service("other", addresses=("10.96.0.8",)))
    late = instance("late-0", "late", address="10.244.0.9", meshed=True, workload="late")
    mesh.change(ObjectKey("Pod", "shop", "late-0"), late)
    found = mesh.asked("late")
    assert isinstance(found, Always) and found.moment.number == 5


def test_a_temporarily_absent_caller_does_not_hide_the_change():
    mesh = Starting()
    key, pod = mesh.pods["orders-0"]
    mesh.change(PAYMENTS)
    mesh.change(key)
    mesh.change(ObjectKey("Service", "shop", "other"), service("other", addresses=("10.96.0.8",)))
    mesh.change(key, pod)
    found = mesh.asked()
    assert isinstance(found, Culprit) and found.moment.number == 4
