import msgspec
import pytest

from weft.inject.webhooks import selectors
from weft.install.values import InjectionValues, Values
from weft.install.webhooks import injector


@pytest.mark.parametrize("revision", ["default", "canary"])
@pytest.mark.parametrize("by_default", [False, True])
def test_they_are_those_that_an_installation_writes_into_the_cluster(revision, by_default):
    written = injector(Values(revision=revision, injection=InjectionValues(by_default=by_default)))["webhooks"]
    known = selectors(revision, namespaces_by_default=by_default)
    assert [webhook["name"] for webhook in written] == [webhook.name for webhook in known]
    for webhook, ours in zip(written, known, strict=True):
        assert _sorted(webhook["namespaceSelector"]) == _sorted(msgspec.to_builtins(ours.namespaces))
        assert _sorted(webhook["objectSelector"]) == _sorted(msgspec.to_builtins(ours.objects))
        assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_a_named_revision_selects_only_its_own_label():
    assert [each.name.split(".sidecar")[0] for each in selectors("canary")] == ["rev.namespace", "rev.object"]
    assert len(selectors("")) == len(selectors("default")) == 4


def _sorted(selector):
    expressions = [msgspec.convert(each, dict) for each in selector["matchExpressions"]]
    return sorted((each["key"], each["operator"], sorted(each.get("values", ()))) for each in expressions)
