"""A proxy that refuses every trial with somebody of these in it; the inquiry is judged by whom it finds, and by what it
leaves behind."""

import pytest
from envoy.config.listener.v3.listener_pb2 import Listener

from model.builders import group
from weft.control.push.culprit_search import Inquiries
from weft.model.names import ObjectKey
from weft.translate.built import build
from weft.translate.suspects import TRIAL, Lineup, Suspect
from weft.xds.snapshot import Snapshots
from weft.xds.stream import NackedResource
from weft.xds.types import LISTENER

WEB = group("web")
SUSPECTS = tuple(Suspect(ObjectKey("Policy", "shop", f"p{number}")) for number in range(9))


class Proxy:
    def __init__(self, *bad):
        self.snapshots = Snapshots()
        self.snapshots.update(WEB, {LISTENER: {"real": build("real", Listener(name="real"))}})
        self.inquiries = Inquiries(self.snapshots)
        self.bad, self.tried, self.found = set(bad), [], []

    def lineup(self, suspects=SUSPECTS):
        def trial(positions):
            return build(TRIAL, Listener(name=TRIAL, stat_prefix=",".join(map(str, positions))))

        return Lineup(tuple(suspects), trial)

    def live(self):
        return self.snapshots.resources(WEB, LISTENER).get(TRIAL)

    def answer(self):
        """Whatever is there to be tried, until there is nothing more."""
        while (trial := self.live()) is not None:
            held = Listener.FromString(trial.body).stat_prefix
            self.tried.append(held)
            if self.bad & {int(each) for each in held.split(",") if each}:
                self.snapshots.reject(WEB, LISTENER, TRIAL, trial.version, "no")
                self.inquiries.refused(WEB, NackedResource(WEB, LISTENER, TRIAL, trial.version, f"not {held}", "web"))
            else:
                self.snapshots.accept(WEB, LISTENER, [trial])
                self.inquiries.accepted(WEB)
            assert len(self.tried) < 100


@pytest.mark.parametrize("bad", [(0,), (8,), (3, 4), (0, 8), tuple(range(9)), ()])
def test_everybody_who_is_refused_alone_is_found_with_what_was_said(bad):
    proxy = Proxy(*bad)
    proxy.inquiries.open(WEB, "topic", proxy.lineup(), proxy.found.append)
    proxy.answer()
    (found,) = proxy.found
    assert set(found) == {(SUSPECTS[number], f"not {number}") for number in bad}
    assert proxy.live() is None and not proxy.snapshots.rejected(WEB)
    assert set(proxy.snapshots.resources(WEB, LISTENER)) == {"real"}


def test_one_among_many_takes_few_trials():
    proxy = Proxy(700)
    many = [Suspect(ObjectKey("Policy", "shop", f"p{number}")) for number in range(1000)]
    proxy.inquiries.open(WEB, "topic", proxy.lineup(many), proxy.found.append)
    proxy.answer()
    assert [each.key.name for (each, _) in proxy.found[0]] == ["p700"]
    assert len(proxy.tried) <= 22


def test_what_was_tried_last_is_taken_so_that_no_refusal_is_left_to_be_seen():
    proxy = Proxy(8)
    proxy.inquiries.open(WEB, "topic", proxy.lineup(), proxy.found.append)
    proxy.answer()
    assert proxy.tried[-1] == ""


def test_inquiries_of_a_group_wait_for_each_other_and_a_closed_one_is_never_told():
    proxy, told = Proxy(1), []
    proxy.inquiries.open(WEB, "first", proxy.lineup(), lambda found: told.append("first"))
    proxy.inquiries.open(WEB, "second", proxy.lineup(), lambda found: told.append("second"))
    proxy.inquiries.open(WEB, "third", proxy.lineup(), lambda found: told.append("third"))
    proxy.inquiries.close(WEB, "first")
    proxy.inquiries.close(WEB, "third")
    proxy.answer()
    assert told == ["second"]
    assert proxy.live() is None


def test_a_group_that_is_gone_is_tried_no_more():
    proxy = Proxy(1)
    proxy.inquiries.open(WEB, "topic", proxy.lineup(), proxy.found.append)
    proxy.inquiries.forget(WEB)
    proxy.answer()
    assert proxy.found == []


def test_nobody_to_suspect_is_no_inquiry():
    proxy = Proxy()
    proxy.inquiries.open(WEB, "topic", proxy.lineup(()), proxy.found.append)
    assert proxy.live() is None
