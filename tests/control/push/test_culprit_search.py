"""The search, with a model of a proxy that rejects every trial that contains a bad suspect. Checked are the suspects
that are found, and what the search leaves in the snapshot."""

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
        """Accept or reject trials until there are no more."""
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
def test_every_suspect_that_is_rejected_alone_is_found_with_its_error(bad):
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


def test_the_last_trial_is_accepted_so_that_config_dump_shows_no_rejection():
    proxy = Proxy(8)
    proxy.inquiries.open(WEB, "topic", proxy.lineup(), proxy.found.append)
    proxy.answer()
    assert proxy.tried[-1] == ""


def test_searches_of_a_group_wait_for_each_other_and_a_closed_one_has_no_result():
    proxy, told = Proxy(1), []
    proxy.inquiries.open(WEB, "first", proxy.lineup(), lambda found: told.append("first"))
    proxy.inquiries.open(WEB, "second", proxy.lineup(), lambda found: told.append("second"))
    proxy.inquiries.open(WEB, "third", proxy.lineup(), lambda found: told.append("third"))
    proxy.inquiries.close(WEB, "first")
    proxy.inquiries.close(WEB, "third")
    proxy.answer()
    assert told == ["second"]
    assert proxy.live() is None


def test_a_dropped_group_is_not_tried_again():
    proxy = Proxy(1)
    proxy.inquiries.open(WEB, "topic", proxy.lineup(), proxy.found.append)
    proxy.inquiries.forget(WEB)
    proxy.answer()
    assert proxy.found == []


def test_no_suspects_means_no_search():
    proxy = Proxy()
    proxy.inquiries.open(WEB, "topic", proxy.lineup(()), proxy.found.append)
    assert proxy.live() is None
