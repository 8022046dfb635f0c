"""The output of `weft explain`, compared with the outcome of the same request; also for past states."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

import pytest

from e2e import looking
from e2e.looking import parsed, weft
from e2e.objects import destination_rule, text, to, virtual_service
from eventually import eventually
from translate import tokens

pytestmark = [pytest.mark.root, pytest.mark.asyncio(loop_scope="module")]

files = looking.files
NOBODY = {
    "apiVersion": "security.istio.io/v1",
    "kind": "AuthorizationPolicy",
    "metadata": {"name": "nobody", "namespace": "shop"},
    "spec": {"action": "DENY", "rules": [{}]},
}


@pytest.mark.parametrize(
    ("path", "version"), [("/", "v1"), ("/old/x", "v2"), ("/one", "v2"), ("/one/more", "v1"), ("/v7/x", "v2")]
)
async def test_a_request_goes_where_explain_predicts(mesh, path, version):
    url = f"http://app{path}"
    (outcome,) = parsed(await weft("explain", "client", "--to", url, "-o", "json"))["outcomes"]
    assert outcome["verdict"]["kind"] == "delivered"
    assert outcome["verdict"]["cluster"].split("|")[2] == version
    really = await mesh.get("client", url)
    assert really["status"] == 200
    assert outcome["verdict"]["workload"].startswith(f"app-{version}-")
    assert really["body"]["pod"].startswith(f"app-{version}-")


async def test_each_decision_is_a_line_with_the_object_that_made_it(mesh):
    told = (await weft("explain", "deploy/client", "--to", "http://app/one")).splitlines()
    assert any(re.search(r"VirtualService shop/app \(\S*app.yaml:\d+\)", line) for line in told), told
    assert any("AuthorizationPolicy shop/guard rule[0]" in line for line in told)
    assert told[-1].startswith("→ delivered: the call reaches app-v2-0.shop")


async def test_explain_predicts_the_outcome_for_a_tcp_port_and_for_an_unknown_host(mesh):
    (outcome,) = parsed(await weft("explain", "client", "--to", "http://ledger:7000/", "-o", "json"))["outcomes"]
    assert outcome["verdict"]["kind"] in ("delivered", "closed")
    told = await weft("explain", "client", "--to", "http://nobody/", "-o", "json")
    assert parsed(told)["outcomes"][0]["verdict"]["kind"] == "failed"


async def test_a_forged_token_is_rejected_as_explain_predicts(mesh):
    spec = {"jwtRules": [{"issuer": tokens.ISSUER, "jwks": tokens.key_set(rsa=tokens.RSA_KEY)}]}
    metadata = {"name": "tokens", "namespace": "shop"}
    checked = {
        "apiVersion": "security.istio.io/v1",
        "kind": "RequestAuthentication",
        "metadata": metadata,
        "spec": spec,
    }
    await mesh.edit({"tokens.yaml": text(checked)})
    for token, status, why in (
        (tokens.token(), 200, ""),
        (tokens.token(tokens.OTHER_KEY), 401, "Jwt verification fails"),
        (tokens.token(exp=1), 401, "Jwt is expired"),
        (tokens.token(kid="new"), 401, "Jwks doesn't have key to match kid or alg from Jwt"),
    ):
        said = await weft("explain", "client", "--to", "http://app/", "--jwt", token, "-o", "json")
        (outcome,) = parsed(said)["outcomes"]
        really = await mesh.get("client", "http://app/", headers={"authorization": f"Bearer {token}"})
        assert really["status"] == status == (outcome["verdict"]["status"] or 200), why
        assert outcome["verdict"]["kind"] == ("denied" if why else "delivered")
        assert why in outcome["verdict"]["why"]
    await mesh.edit({"tokens.yaml": None})


async def test_a_workload_that_is_not_there_is_an_error_with_a_hint(mesh):
    words = await weft("explain", "clinet", "--to", "http://app/", code=1)
    assert "there is no workload or pod `clinet`" in words
    assert "did you mean `client`?" in words
    assert "the scheme `ftp` is not supported" in await weft("explain", "client", "--to", "ftp://app/", code=1)


async def test_history_knows_what_was_and_explain_looks_at_it(mesh):
    await mesh.edit({"first.yaml": text(virtual_service("a-first", {"route": [to("app", "v2")]}, hosts=["app"]))})
    before = parsed(await weft("history", "-o", "json"))["moments"]
    at = datetime.fromtimestamp(before[-1]["at"], UTC)
    await eventually(lambda: time.time() >= int(at.timestamp()) + 1)  # the next change is in another second
    await mesh.edit({"first.yaml": None})
    moments = parsed(await weft("history", "-o", "json"))["moments"]
    assert len(moments) == len(before) + 1
    last = moments[-1]
    assert [(each["object"]["name"], each["what"]) for each in last["changes"]] == [("a-first", "removed")]
    shown = await weft("history")
    assert f"@{last['number']} " in shown
    assert "VirtualService shop/a-first removed" in shown

    async def version(*when):
        said = await weft("explain", "client", "--to", "http://app/zzz", "-o", "json", *when)
        return parsed(said)["outcomes"][0]["verdict"]["cluster"].split("|")[2]

    assert await version() == "v1"
    for when in (f"@{before[-1]['number']}", "@-1", at.isoformat(timespec="seconds"), f"{at.astimezone():%H:%M:%S}"):
        assert await version("--at", when) == "v2", when
    assert await version("--at", f"@{last['number']}") == "v1"
    early = f"{datetime.now().astimezone() - timedelta(hours=1):%H:%M}"
    assert "was not running yet" in await weft("explain", "client", "--to", "http://app/", "--at", early, code=1)
    assert "is not a time" in await weft("explain", "client", "--to", "http://app/", "--at", "soon", code=1)


async def test_bisect_finds_the_change_that_turned_a_request(mesh):
    beside = destination_rule("ledger", "v1")
    await mesh.edit({"denied.yaml": text(beside, NOBODY)})
    said = await weft("bisect", "client", "--to", "http://app/one")
    assert "AuthorizationPolicy shop/nobody added" in said
    assert "DestinationRule shop/ledger added" in said
    assert "  - delivered: outbound|80|v2|" in said
    assert "  + denied 403" in said
    assert re.search(r"^  by AuthorizationPolicy shop/nobody \(\S*denied.yaml:\d+\)$", said, re.MULTILINE), said

    async def denied():
        return (await mesh.get("client", "http://app/one"))["status"] == 403

    assert await eventually(denied)  # an open connection may follow the old rules for a while
    await mesh.edit({"denied.yaml": None})
