import json
import time

import pytest

from cli.files.test_test import SERVICE, TESTS

ON_DEMAND = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system, annotations: {weft.dev/on-demand: "true"}}
data: {mesh: "{}"}
"""
POLICY = """
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: nobody, namespace: shop}
spec: {}
"""


def test_a_change_is_shown_by_proxies_and_by_requests(weft, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "web.yaml").write_text(SERVICE)
    (base / "tests.yaml").write_text(TESTS)
    change = tmp_path / "change.yaml"
    change.write_text(POLICY)
    done = weft("diff", "-f", change, "--against", base)
    assert done.returncode == 1, done.stderr
    added, rest = done.stdout.split("\n", 1)
    assert added.startswith("added AuthorizationPolicy shop/nobody (") and added.endswith("change.yaml:2)")
    assert rest.startswith("sidecar:shop/web (web-0.shop)\n  changed listener virtualInbound\n")
    assert "\n  by AuthorizationPolicy shop/nobody (" in rest
    assert "\nweb GET http://web/ (" in done.stdout
    assert "  - delivered: outbound|80||web.shop.svc.cluster.local" in done.stdout
    assert "  + denied 403: outbound|80||web.shop.svc.cluster.local" in done.stdout
    assert (
        "1 object and the config of 1 group of proxies change, that of 0 does not; 2 of 2 requests have another result"
        in done.stderr
    )
    said = json.loads(weft("diff", "-f", change, "--against", base, "-o", "json").stdout)
    assert [each["name"] for each in said["proxies"][0]["resources"]] == ["virtualInbound"]


def test_missing_recent_traffic_is_reported_where_it_matters(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "on.yaml").write_text(ON_DEMAND)
    said = "note: some proxies get config on demand; their calls are not known here, so their config for all services is compared"
    assert said in weft("diff", "-f", tmp_path / "on.yaml", "--against", tmp_path / "web.yaml").stderr
    assert said in weft("diff", "-f", tmp_path / "web.yaml", "--against", tmp_path).stderr
    assert said not in weft("diff", "-f", tmp_path / "web.yaml", "--against", tmp_path / "web.yaml").stderr


def test_the_same_again_changes_nothing(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    done = weft("diff", "-f", tmp_path / "web.yaml", "--against", tmp_path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "nothing to compare is given"),
        (["@-1", "-f", "x.yaml"], "files (-f) cannot be applied to a moment of the past"),
        (["@-3", "@-2", "@-1"], "too many moments are given"),
        (["@-1", "--against", "."], "too many moments are given, or a moment together with --against"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(weft, arguments, said):
    done = weft("diff", *arguments)
    assert done.returncode == 2 and said in done.stderr


ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: spare, namespace: shop}
"""
ON_DEMAND = """
apiVersion: v1
kind: ConfigMap
metadata: {name: istio, namespace: istio-system, annotations: {weft.dev/on-demand: "true"}}
data: {mesh: "{}"}
"""


@pytest.mark.parametrize(("change", "told"), [(ACCOUNT, "added ServiceAccount"), (ON_DEMAND, "added ConfigMap")])
def test_an_object_that_is_another_is_a_change_also_if_no_proxy_is_sent_anything(weft, tmp_path, change, told):
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "web.yaml").write_text(SERVICE)
    (tmp_path / "change.yaml").write_text(change)
    done = weft("diff", "-f", tmp_path / "change.yaml", "--against", tmp_path / "base")
    assert (done.returncode, done.stdout.startswith(told)) == (1, True), done.stdout + done.stderr
    assert "1 object and the config of 0 groups of proxies change, that of 1 does not; 0 of" in done.stderr
    done = weft("diff", "-f", tmp_path / "base", "--against", tmp_path / "base")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_an_error_that_prevents_a_result_exits_with_2(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    (tmp_path / "bad.yaml").write_text("a: [")
    for arguments in (
        ["-f", tmp_path / "none.yaml", "--against", tmp_path],
        ["-f", tmp_path / "bad.yaml", "--against", tmp_path / "web.yaml"],
        ["-f", tmp_path / "web.yaml", "--mesh", "nobody"],
        ["@-1", "--mesh", "nobody"],
    ):
        done = weft("diff", *arguments)
        assert (done.returncode, done.stdout) == (2, "") and "error: " in done.stderr, arguments


def test_a_file_instead_of_a_moment_is_an_error_with_the_right_flag(weft, tmp_path):
    (tmp_path / "web.yaml").write_text(SERVICE)
    done = weft("diff", tmp_path / "web.yaml")
    assert done.returncode == 2
    assert (
        f"web.yaml is a file, not a moment\nhint: to see what the file would change: weft diff -f {tmp_path}"
        in done.stderr
    )


@pytest.mark.root
def test_a_mesh_without_a_history_is_reported(weft, mesh):
    done = weft("diff", "@-1", "--mesh", mesh)
    assert done.returncode == 2 and "moment -1 is not recorded: nothing has changed yet" in done.stderr
    done = weft("diff", "@0", "@0", "--mesh", mesh)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "note: at @0 there was no workload or pod yet; list the moments: weft history -A\n" in done.stderr
    assert "from @0 to @0: 0 objects" in done.stderr
    assert "recent traffic is not compared" in done.stderr


ROUTE = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http:
  - {timeout: TIMEOUT, route: [{destination: {host: web}}]}
"""


def test_errors_of_the_base_stop_no_change(weft, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "web.yaml").write_text(SERVICE)
    (base / "broken.yaml").write_text(ROUTE.replace("TIMEOUT", "soon").replace("name: web,", "name: broken,"))
    (base / "torn.yaml").write_text("a: [")
    change = tmp_path / "change.yaml"
    change.write_text(POLICY)
    done = weft("diff", "-f", change, "--against", base)
    assert "added AuthorizationPolicy shop/nobody" in done.stdout, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if "WFT0001" in line]
    assert (
        warning.startswith("warning: ")
        and "has 2 errors; objects with errors are left out; the first error: " in warning
    )


def test_a_file_that_fixes_a_rejected_object_is_compared(weft, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    (base / "web.yaml").write_text(SERVICE)
    (base / "route.yaml").write_text(ROUTE.replace("TIMEOUT", "soon"))
    change = tmp_path / "change.yaml"
    change.write_text(ROUTE.replace("TIMEOUT", "3s"))
    done = weft("diff", "-f", change, "--against", base)
    assert "added VirtualService shop/web" in done.stdout, done.stderr
    assert "WFT0001" not in done.stderr
    change.write_text(ROUTE.replace("TIMEOUT", "later"))
    done = weft("diff", "-f", change, "--against", base)
    assert (done.returncode, done.stdout) == (2, "")
    assert "change.yaml:8: VirtualService shop/web: " in done.stderr and "error [WFT0001]" in done.stderr
    assert done.stderr.endswith("error: an error in the given files\nhint: fix the problems above, and try again\n")


def test_only_problems_of_the_given_files_are_printed_and_only_once(weft, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    elsewhere = ROUTE.replace("TIMEOUT", "3s").replace("{host: web}", "{host: NAME}")
    (base / "web.yaml").write_text(SERVICE + "---" + elsewhere.replace("NAME", "nowhere"))
    change = tmp_path / "change.yaml"
    change.write_text(POLICY)
    done = weft("diff", "-f", change, "--against", base)
    assert "added AuthorizationPolicy" in done.stdout and "nowhere" not in done.stderr
    change.write_text(elsewhere.replace("NAME", "nobody"))
    done = weft("diff", "-f", change, "--against", base)
    assert "nowhere" not in done.stderr and done.stderr.count("[WFT0104]") == 1


def test_groups_with_equal_names_are_distinguished(weft, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    service, workload = SERVICE.split("---")
    versions = [
        workload.replace("name: web,", f"name: web-{version},").replace(
            "{app: web}", f"{{app: web, version: {version}}}"
        )
        for version in ("v1", "v2")
    ]
    (base / "web.yaml").write_text("---".join([service, *versions]))
    change = tmp_path / "change.yaml"
    change.write_text(POLICY)
    done = weft("diff", "-f", change, "--against", base)
    titles = [line for line in done.stdout.splitlines() if line.startswith("sidecar:")]
    assert titles == ["sidecar:shop/web version=v1 (web-v1-0.shop)", "sidecar:shop/web version=v2 (web-v2-0.shop)"]


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it has not come"
        time.sleep(0.1)


@pytest.mark.root
def test_a_running_mesh_is_compared_by_its_last_good_state_and_its_audit_reports_rejected_objects(
    weft, mesh, mesh_directory, tmp_path
):
    route = ROUTE.replace("metadata: {name: web,", "metadata: {name: kept,")
    file, change = mesh_directory / "kept.yaml", tmp_path / "change.yaml"
    change.write_text(route.replace("TIMEOUT", "3s"))

    def told():
        """Return the problems of the kept object by severity, as the mesh reports them, and the number of objects."""
        now = json.loads(weft("status", mesh, "-o", "json").stdout)
        about = {each["severity"] for each in now["problems"] if "shop/kept" in each["where"]["object"]}
        return now["objects"], about

    objects, _ = told()
    try:
        file.write_text(route.replace("TIMEOUT", "3s"))
        wait_for(lambda: told()[0] == objects + 1)
        file.write_text(route.replace("TIMEOUT", "soon"))
        wait_for(lambda: "error" in told()[1])
        done = weft("diff", "-f", change, "--mesh", mesh)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        change.write_text(POLICY)
        done = weft("diff", "-f", change, "--mesh", mesh)
        assert done.stdout.startswith("added AuthorizationPolicy shop/nobody"), done.stderr
        assert (
            f"warning: mesh {mesh} has an error; the last valid versions of objects with errors are used" in done.stderr
        )
        done = weft("audit", "--mesh", mesh)
        assert done.stdout.startswith("Rejected objects and other errors\n  error [WFT0001]: "), done.stdout
        assert ": 1 error, " in done.stderr
    finally:
        file.unlink()
        wait_for(lambda: told() == (objects, set()))
