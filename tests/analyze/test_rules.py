from analyze.meshes import WEB, istio, said

SUBSETS = "{host: web, subsets: [{name: v1, labels: {version: v1}}, {name: v2, labels: {version: v2}}]}"


def test_a_rule_for_existing_hosts_has_no_findings():
    assert said(WEB + istio("DestinationRule", SUBSETS)) == []
    assert said(WEB + istio("DestinationRule", "{host: '*.shop.svc.cluster.local'}")) == []


def test_an_unknown_host_is_reported_with_a_guess():
    (line,) = said(WEB + istio("DestinationRule", "{host: wbe}"))
    assert "DestinationRule shop/x: spec.host: warning: no Service or ServiceEntry has the host wbe.shop.svc" in line
    assert "did you mean `web.shop.svc.cluster.local`?" in line
    (line,) = said(WEB + istio("DestinationRule", "{host: web.shop}"))
    assert "a host with a dot is a full name: write web.shop.svc.cluster.local" in line
    assert len(said(WEB + istio("DestinationRule", "{host: '*.example.com'}"))) == 1


def test_an_empty_subset_is_reported():
    (line,) = said(WEB + istio("DestinationRule", SUBSETS.replace("version: v2", "version: v3")))
    assert (
        "spec.subsets[1].labels: warning: no workload behind web.shop.svc.cluster.local has the labels version=v3"
        in line
    )
    assert "(hint: version: known here: v1, v2)" in line


def test_a_subset_must_select_workloads_of_the_service():
    other = WEB.replace("labels: {app: web, version: v2}", "labels: {app: api, version: v2}")
    assert len(said(other + istio("DestinationRule", SUBSETS))) == 1


def test_the_endpoints_of_an_entry_have_labels_too():
    ports = "ports: [{number: 80, name: http, protocol: HTTP}]"
    entry = (
        f"{{hosts: [a.b], resolution: STATIC, endpoints: [{{address: 192.0.2.1, labels: {{version: v1}}}}], {ports}}}"
    )
    rule = "{host: a.b, subsets: [{name: v1, labels: {version: v1}}, {name: v9, labels: {version: v9}}]}"
    (line,) = said(istio("ServiceEntry", entry) + istio("DestinationRule", rule))
    assert "subset 'v9'" in line


def test_a_service_without_workloads_is_reported_once_and_not_for_each_subset():
    (line,) = said(WEB.replace("selector: {app: web}", "selector: {app: wbe}") + istio("DestinationRule", SUBSETS))
    assert line.startswith("Service shop/web")


def test_callers_that_do_not_exist_are_reported():
    (line,) = said(WEB + istio("DestinationRule", "{host: web, workloadSelector: {matchLabels: {app: wbe}}}"))
    assert "spec.workloadSelector: warning: no workload of namespace shop has the labels app=wbe" in line


NEAR = "{{host: web, trafficPolicy: {{{0}loadBalancer: {{localityLbSetting: {{{1}}}}}}}}}"


def test_failover_without_outlier_detection_is_reported():
    failover = "failover: [{from: eu, to: us}]"
    (line,) = said(WEB + istio("DestinationRule", NEAR.format("", failover)))
    assert "there is no failover" in line and "add `outlierDetection`" in line
    assert said(WEB + istio("DestinationRule", NEAR.format("outlierDetection: {}, ", failover))) == []


def test_distribute_to_localities_without_endpoints_is_reported():
    placed = WEB.replace("labels: {app: web, version: v1}", "labels: {app: web, version: v1, istio-locality: eu.eu-a}")
    assert (
        said(placed + istio("DestinationRule", NEAR.format("", "distribute: [{from: eu, to: {eu: 90, us: 10}}]"))) == []
    )
    (line,) = said(placed + istio("DestinationRule", NEAR.format("", "distribute: [{from: eu, to: {us: 100}}]")))
    assert "no endpoint of web.shop.svc.cluster.local is in us: calls from eu fail" in line


def test_without_ages_the_first_rule_by_name_decides():
    spec = "{host: web, trafficPolicy: {tls: {mode: DISABLE}}, subsets: [{name: v1, labels: {version: v1}}]}"
    policy, subset = said(WEB + istio("DestinationRule", spec, "b") + istio("DestinationRule", spec, "a"))
    assert "DestinationRule shop/b: spec.trafficPolicy: warning: DestinationRule a is for web.shop.svc" in policy
    assert "too and comes first by its name: its trafficPolicy is used instead of this rule's" in policy
    assert (
        "DestinationRule a comes first by its name and has a subset v1 too: that subset is used instead of this one"
        in subset
    )


def test_the_older_of_two_rules_for_a_host_decides():
    spec = "{host: web, subsets: [{name: v1, labels: {version: v1}}]}"
    old = istio("DestinationRule", spec, "b, creationTimestamp: 2026-01-01T00:00:00Z")
    (line,) = said(WEB + istio("DestinationRule", spec, "a, creationTimestamp: 2026-01-02T00:00:00Z") + old)
    assert "DestinationRule shop/a: " in line
    assert "DestinationRule b is older and has a subset v1 too: that subset is used instead of this one" in line
