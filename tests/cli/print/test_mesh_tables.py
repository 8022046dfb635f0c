import io

import msgspec
import pytest
from rich.console import Console

from cli.statuses import HTTP_EDGE, PROBLEM, TCP_EDGE, mesh, pod, workload
from weft.cli.print.mesh_tables import age, edge_table, mesh_view, pod_table, problem_list, short_host, workload_table
from weft.local.status import EdgeStatus, PodPhase, PodSync, RejectedVersion
from weft.node.status import IdentityStatus


def rendered(renderable, width=120):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_shows_each_workload_with_its_worst_pod():
    catalog = workload(
        "catalog",
        pod("catalog", PodPhase.READY),
        pod(
            "catalog",
            PodPhase.BACK_OFF,
            index=1,
            sync=PodSync.STALE,
            restarts=3,
            message="exit code 1, next start in 4 s",
        ),
    )
    lines = rendered(workload_table([catalog]))
    assert lines[0].split() == ["WORKLOAD", "READY", "PHASE", "SYNC", "RESTARTS", "MESSAGE"]
    assert lines[1].split(maxsplit=5) == ["catalog", "1/2", "BackOff", "STALE", "3", "exit code 1, next start in 4 s"]


def test_a_completed_job_is_not_counted_as_unready():
    (line,) = rendered(workload_table([workload("migrate", pod("migrate", PodPhase.COMPLETED, sync=PodSync.NONE))]))[1:]
    assert line.split() == ["migrate", "–", "Completed", "-", "0"]


def test_a_workload_without_pods_is_shown_all_the_same():
    (line,) = rendered(workload_table([workload("empty")]))[1:]
    assert line.split() == ["empty", "0/0", "–", "-", "0"]


def test_names_namespaces_only_where_there_are_several():
    one = workload("a", pod("a"))
    other = workload("a", pod("a", namespace="bank"), namespace="bank")
    assert rendered(workload_table([one]))[1].startswith("a ")
    assert [line.split()[0] for line in rendered(workload_table([one, other]))[1:]] == ["shop/a", "bank/a"]


def test_counts_a_proxys_restarts_apart():
    assert "2 (+1 proxy)" in rendered(workload_table([workload("a", pod("a", restarts=2, proxy_restarts=1))]))[1]


def test_shows_edges_with_rate_success_and_latency():
    lines = rendered(mesh_view(mesh(workload("frontend", pod("frontend")), edges=(HTTP_EDGE, TCP_EDGE))))
    http = next(line for line in lines if "payments:80" in line)
    assert http.split() == ["frontend", "payments:80", "v1", "18.0", "99.5", "%", "1.2", "ms", "140", "ms", "1804"]
    tcp = next(line for line in lines if "ledger:7000" in line)
    assert tcp.split() == ["payments-v1", "ledger:7000", "–", "–", "–", "321", "connections"]


@pytest.mark.parametrize(
    ("success", "denied", "shown"),
    [(1.0, 0.0, "100 %"), (1.0, 1.0, "denied"), (1.0, 0.4, "40 % denied"), (0.5, 0.4, "50.0 %")],
)
def test_a_denied_caller_is_not_shown_as_healthy(success, denied, shown):
    lines = rendered(edge_table((edge("snoop", "payments", success=success, denied=denied),)))
    assert f" {shown} " in lines[1]


def test_puts_problems_at_the_bottom_with_their_place_and_hint():
    lines = rendered(mesh_view(mesh(workload("a", pod("a")), problems=(PROBLEM,))), width=200)
    assert lines[-1] == (
        "payments.yaml:66: VirtualService shop/payments: spec.http[0].retires: error: unknown field `retires` "
        "(hint: did you mean `retries`?)"
    )


def test_shows_only_the_first_problems_and_the_number_of_others():
    lines = rendered(problem_list([PROBLEM] * 5, most=2), width=200)
    assert lines[2:] == ["and 3 more: weft status"]


def test_a_message_may_hold_what_looks_like_markup():
    line = rendered(workload_table([workload("a", pod("a", message="[red]not markup[/red] [1, 2]"))]))[1]
    assert line.endswith("[red]not markup[/red] [1, 2]")


def test_ps_lists_each_pod_and_wide_adds_more_columns():
    pods = [mesh(workload("a", pod("a", since=100.0, proxy_memory=15_500_000, exit_code=137)))]
    short = rendered(pod_table(pods, wide=False, now=190.0))
    assert short[1].split() == ["a-0", "Ready", "SYNCED", "0", "90s", "4711", "10.0.0.7"]
    wide = rendered(pod_table(pods, wide=True, now=190.0), width=160)
    assert wide[1].split()[7:] == ["fd00::7", "15.5", "MB", "137", "–"]


def test_ps_wide_has_the_identity_and_on_a_narrow_terminal_stands_below_the_pods_name():
    identity = IdentityStatus(workload="shop/a-0", identity="spiffe://cluster.local/ns/shop/sa/a")
    pods = [mesh(workload("a", pod("a", identity=identity)))]
    assert rendered(pod_table(pods, wide=True, now=0.0), width=160)[1].split()[-1] == identity.identity
    lines = rendered(pod_table(pods, wide=True, now=0.0), width=80)
    assert lines[0] == "a-0"
    assert ["IDENTITY", identity.identity] in [line.split() for line in lines]
    assert all(len(line) <= 80 for line in lines)


def test_ps_names_the_mesh_where_there_are_several():
    one = mesh(workload("a", pod("a")))
    other = msgspec.structs.replace(one, name="bank")
    lines = rendered(pod_table([one, other], wide=False, now=0.0))
    assert [line.split()[:2] for line in lines] == [["MESH", "POD"], ["shop", "a-0"], ["bank", "a-0"]]


def edge(source: str, destination: str, **fields) -> EdgeStatus:
    fields = {"requests_per_second": 17.3, "success": 0.512, "p50_ms": 12.3, "p99_ms": 140.0, "requests": 10, **fields}
    return EdgeStatus(f"shop/{source}", f"{destination}.shop.svc.cluster.local", 80, **fields)


def test_a_narrow_terminal_loses_columns_before_letters_and_keeps_every_unit():
    edges = (edge("recommendations-v1", "payments-database"), TCP_EDGE)
    at = {width: rendered(edge_table(edges), width=width) for width in (100, 80, 70, 50)}
    assert at[100][0].split() == ["FROM", "TO", "REQ/S", "SUCCESS", "P50", "P99", "TOTAL"]
    assert at[80][0].split() == ["FROM", "TO", "REQ/S", "SUCCESS", "P50", "P99"]
    assert at[70][0].split() == ["FROM", "TO", "REQ/S", "SUCCESS", "P99"]
    assert all("51.2 %" in lines[2] and "140 ms" in lines[2] for lines in at.values())
    assert "321 connections" in at[100][1] and "321 conn." in at[80][1]
    assert max(len(line) for line in at[50]) <= 50


def test_subsets_have_a_column_where_there_are_any():
    assert "SUBSET" in rendered(edge_table([HTTP_EDGE]))[0]
    assert "SUBSET" not in rendered(edge_table([TCP_EDGE]))[0]


def test_names_that_are_cut_still_differ():
    edges = (edge("a-very-long-name-payments-v1", "x"), edge("a-very-long-name-payments-v2", "x"))
    first, second = (line.split()[0] for line in rendered(edge_table(edges), width=45)[1:])
    assert first != second and first.endswith("v1") and "…" in first


def test_one_connection_is_in_the_singular():
    (line,) = rendered(edge_table([msgspec.structs.replace(TCP_EDGE, connections=1)]))[1:]
    assert line.split()[-2:] == ["1", "connection"]


def test_a_short_terminal_gets_the_worst_workloads_and_the_busiest_edges():
    workloads = [
        workload(f"w{n:02}", pod(f"w{n:02}", PodPhase.READY if n != 15 else PodPhase.FAILED)) for n in range(20)
    ]
    edges = tuple(edge("w", f"to{n:02}", requests_per_second=float(n)) for n in range(20))
    status = mesh(*workloads, edges=edges, problems=(PROBLEM,) * 3)
    lines = rendered(mesh_view(status, height=21), width=200)
    assert len(lines) <= 21
    assert any(line.startswith("w15") and "Failed" in line for line in lines)
    assert any("to19:80" in line for line in lines) and not any("to00:80" in line for line in lines)
    assert sum(line.startswith("… ") and line.endswith(" more") for line in lines) == 2
    assert len(rendered(mesh_view(status), width=200)) == 49


def test_what_fits_is_not_cut():
    status = mesh(workload("a", pod("a")), edges=(HTTP_EDGE,), problems=(PROBLEM,))
    whole = rendered(mesh_view(status))
    assert rendered(mesh_view(status, height=len(whole))) == whole


def test_text_of_several_lines_stays_in_its_row():
    lines = rendered(workload_table([workload("a", pod("a", message="first\nsecond"))]))
    assert lines[1].endswith("first second")


def test_no_line_is_wider_than_the_terminal():
    status = mesh(workload("a", pod("a", message="long " * 40)), edges=(HTTP_EDGE,), problems=(PROBLEM,), push=7)
    assert max(len(line) for line in rendered(mesh_view(status), width=60)) <= 60


def test_short_host_drops_what_the_caller_would_not_write():
    assert short_host("catalog.shop.svc.cluster.local", "shop") == "catalog"
    assert short_host("catalog.shop.svc.cluster.local", "bank") == "catalog.shop"
    assert short_host("api.example.com", "shop") == "api.example.com"


def test_age_is_short():
    assert [age(seconds) for seconds in (-1, 5, 119, 120, 7199, 7200, 172800)] == [
        "0s", "5s", "119s", "2m", "119m", "2h", "2d",
    ]  # fmt: skip


@pytest.mark.parametrize("width", (60, 80, 100, 120))
@pytest.mark.parametrize(
    "table", (lambda of: pod_table([of], wide=False, now=0.0), lambda of: workload_table(of.workloads))
)
def test_no_value_is_cut_on_a_narrow_terminal(table, width):
    message = "exit code 1, next start in 4 s: the program /srv/recommendations/bin/serve does not exist"
    status = mesh(
        workload(
            "recommendations-canary", pod("recommendations-canary", PodPhase.BACK_OFF, restarts=3, message=message)
        ),
        workload("ledger", pod("ledger", namespace="bank"), namespace="bank"),
    )
    lines = rendered(table(status), width=width)
    text = " ".join(" ".join(lines).split())
    assert "…" not in text and max(map(len, lines)) <= width
    assert "recommendations-canary" in text and "BackOff" in text and "Ready" in text


def test_an_object_of_which_an_earlier_version_is_in_force_is_named():
    outdated = RejectedVersion("Service shop/web", "Service", "web.yaml", 9, is_in_force=True)
    lines = rendered(mesh_view(mesh(workload("web", pod("web")), rejected=(outdated,)), problems=None))
    assert lines[-1] == str(outdated)
    shown = rendered(mesh_view(mesh(problems=(PROBLEM,), is_checked=False), problems=None))
    assert shown[-1] == "findings about several objects are being computed again"
