import asyncio
from pathlib import Path


import yaml

from translate.policy_rig import Request, rig

SETS = yaml.safe_load((Path(__file__).parent / "authorization_cases.yaml").read_text())
WORDS = {"disguised-path": "weft-disguised-path", "disguised-header": "weft-disguised-header", "none": "none"}


def test_the_table_is_large_enough():
    assert sum(len(entry["cases"]) for entry in SETS) >= 150


async def test_real_envoy_says_what_the_table_says():
    cases = [(number, case) for number, entry in enumerate(SETS) for case in entry["cases"]]
    async with rig([documents(entry["policies"]) for entry in SETS]) as one:
        limit = asyncio.Semaphore(20)

        async def ask(index, number, case):
            async with limit:
                return await one.send(number, request(case), f"case-{index}")

        answers = await asyncio.gather(*(ask(index, *each) for index, each in enumerate(cases)))
        wrong = []
        for (number, case), answer in zip(cases, answers, strict=True):
            if answer.status != {"allow": 200, "deny": 403}[case[0]]:
                wrong.append(f"{SETS[number]['set']}: {case}: {answer.status}")
        assert not wrong
        lines = await one.logged(len(cases))
        by_case = {line["case"]: line for line in lines if line["case"]}
        for index, (number, case) in enumerate(cases):
            expected = options(case).get("by")
            if expected is None or case[1] == "TCP":
                continue
            line = by_case[f"case-{index}"]
            decided = f"rbac_access_denied_matched_policy[{full(expected)}]"
            if case[0] == "allow":
                decided, line = full(expected), {"details": line["rbac"]["enforced_effective_policy_id"]}
            if line["details"] != decided:
                wrong.append(f"{SETS[number]['set']}: {case}: {line['details']}")
        assert not wrong
        ended = {}
        for line in lines:
            if not line["case"]:
                ended.setdefault(line["address"], set()).add(line["ended"])
        for number, case in cases:
            if case[1] == "TCP" and "by" in options(case):
                expected = f"rbac_access_denied_matched_policy[{full(options(case)['by'])}]"
                assert expected in ended[one.address(number)], case


def documents(policies):
    return "---\n".join(yaml.dump(document(number, policy)) for number, policy in enumerate(policies))


def document(number, policy):
    metadata = {"name": policy.get("name", f"p{number}"), "namespace": policy.get("namespace", "shop")}
    if policy.get("dryRun"):
        metadata["annotations"] = {"istio.io/dry-run": "true"}
    spec = {name: policy[name] for name in ("action", "rules") if name in policy}
    if "selector" in policy:
        spec["selector"] = {"matchLabels": policy["selector"]}
    if "provider" in policy:
        spec["provider"] = {"name": policy["provider"]}
    return {"apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": metadata, "spec": spec}


def options(case):
    return case[2] if len(case) > 2 else {}


def request(case):
    given = options(case)
    method, _, path = case[1].partition(" ")
    identity = given.get("as", "")
    if identity and "://" not in identity:
        namespace, account = identity.split("/")
        identity = f"spiffe://cluster.local/ns/{namespace}/sa/{account}"
    return Request(
        method=method,
        path=path.strip('"'),
        host=given.get("host", "orders"),
        headers=list(given.get("headers", {}).items()),
        principal=identity,
        source=given.get("from", "127.0.0.1"),
        server_name=given.get("sni", ""),
        claims=given.get("claims"),
        tcp=method == "TCP",
    )


def full(decision):
    if decision in WORDS:
        return WORDS[decision]
    name, _, rule = decision.partition("/")
    number, _, rest = rule.partition("-")
    prefix = f"ns[shop]-policy[{name}]-rule[{number}]"
    return f"{prefix}-{rest}" if rest else prefix
