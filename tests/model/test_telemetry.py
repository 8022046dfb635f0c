"""Whose rule holds where: Istio's levels, as istiod 1.30 resolves them."""

import pytest

from model.builders import group, put
from weft.mesh.mesh import Mesh
from weft.mesh.touched import EVERYWHERE, Touched
from weft.model.access_log import FileLog, LogProvider, Reporter
from weft.model.names import labels_of
from weft.model.settings import Settings
from weft.model.telemetry import AccessLogging, Telemetry

ROOT = "istio-system"
PROVIDERS = tuple(LogProvider(name, FileLog(f"/{name}")) for name in ("a", "b", "c"))
CLIENT, SERVER = Reporter.CLIENT, Reporter.SERVER
BY_DEFAULT = Settings(logs=(FileLog("/c"),), log_providers=PROVIDERS, default_log_providers=("c",))
TO_FILE = Settings(logs=(FileLog("/mesh"),), log_providers=PROVIDERS)
NO_LOG = Settings(log_providers=PROVIDERS)


def rule(*providers, **more):
    return AccessLogging(providers=providers, **more)


def mesh_wide(*rules):
    return Telemetry("mesh", ROOT, access_logging=rules)


def of_namespace(*rules, name="shop", **more):
    return Telemetry(name, "shop", access_logging=rules, **more)


def of_workload(*rules, name="orders", **more):
    return Telemetry(name, "shop", labels_of({"app": "orders"}), rules, **more)


# What is written, as PATH or PATH?FILTER, by the proxies of callers and of the called.
CASES = {
    "nothing asks for a log": (NO_LOG, (), "", ""),
    "the mesh's file": (TO_FILE, (), "/mesh", "/mesh"),
    "the default provider": (BY_DEFAULT, (), "/c", "/c"),
    "the mesh's rule": (NO_LOG, (mesh_wide(rule("a")),), "/a", "/a"),
    "a rule replaces the mesh's file": (TO_FILE, (mesh_wide(rule("a")),), "/a", "/a"),
    "a rule replaces the default provider": (BY_DEFAULT, (mesh_wide(rule("a")),), "/a", "/a"),
    "several providers": (NO_LOG, (mesh_wide(rule("a", "b")),), "/a /b", "/a /b"),
    "a namespace replaces the mesh's": (NO_LOG, (mesh_wide(rule("a")), of_namespace(rule("b"))), "/b", "/b"),
    "a workload replaces its namespace's": (NO_LOG, (of_namespace(rule("a")), of_workload(rule("b"))), "/b", "/b"),
    "a workload's rule for SERVER keeps the namespace's for CLIENT": (
        NO_LOG,
        (of_namespace(rule("a", filter="x")), of_workload(rule("a", reporter=SERVER))),
        "/a?x",
        "/a",
    ),
    "a rule for SERVER keeps the default for CLIENT": (
        BY_DEFAULT,
        (mesh_wide(rule("a", reporter=SERVER)),),
        "/c",
        "/a",
    ),
    "a rule for SERVER keeps the mesh's file for CLIENT": (
        TO_FILE,
        (mesh_wide(rule("a", reporter=SERVER)),),
        "/mesh",
        "/a",
    ),
    "each side its own": (
        NO_LOG,
        (mesh_wide(rule("a", reporter=CLIENT), rule("b", reporter=SERVER)),),
        "/a",
        "/b",
    ),
    "disabled below": (NO_LOG, (mesh_wide(rule("a")), of_workload(rule(disabled=True))), "", ""),
    "disabled on one side": (
        NO_LOG,
        (mesh_wide(rule("a")), of_workload(rule(disabled=True, reporter=CLIENT))),
        "",
        "/a",
    ),
    "disabled against the mesh's file": (TO_FILE, (of_workload(rule(disabled=True)),), "", ""),
    "disabled against the default provider": (BY_DEFAULT, (of_workload(rule(disabled=True)),), "", ""),
    "one of two disabled": (NO_LOG, (mesh_wide(rule("a", "b"), rule("a", disabled=True)),), "/b", "/b"),
    "disabled above, on again below, with the filter it had": (
        NO_LOG,
        (mesh_wide(rule("a", filter="x", disabled=True)), of_namespace(rule(disabled=False))),
        "/a?x",
        "/a?x",
    ),
    "a filter alone is for the provider above": (
        NO_LOG,
        (mesh_wide(rule("a")), of_namespace(rule(filter="x"))),
        "/a?x",
        "/a?x",
    ),
    "a filter alone is for the mesh's file": (TO_FILE, (of_namespace(rule(filter="x")),), "/mesh?x", "/mesh?x"),
    "a provider named again without a filter writes all": (
        NO_LOG,
        (mesh_wide(rule("a", filter="x")), of_namespace(rule("a"))),
        "/a",
        "/a",
    ),
    "a name that is no provider writes nothing": (NO_LOG, (mesh_wide(rule("d")),), "", ""),
    "upper and lower case are one": (NO_LOG, (mesh_wide(rule("A")),), "/a", "/a"),
    "the oldest of a namespace speaks": (
        NO_LOG,
        (of_namespace(rule("a"), name="z", created="2026-01-01"), of_namespace(rule("b"), name="y")),
        "/a",
        "/a",
    ),
    "the oldest speaks even if it says nothing of logs": (
        TO_FILE,
        (of_namespace(name="z", created="2026-01-01"), of_namespace(rule("b"), name="y")),
        "/mesh",
        "/mesh",
    ),
    "a selector in the root namespace reaches no further": (
        NO_LOG,
        (Telemetry("orders", ROOT, labels_of({"app": "orders"}), (rule("a"),)),),
        "",
        "",
    ),
    "another namespace's is not ours": (NO_LOG, (Telemetry("x", "bank", access_logging=(rule("a"),)),), "", ""),
    "another workload's is not ours": (
        NO_LOG,
        (Telemetry("x", "shop", labels_of({"app": "cart"}), (rule("a"),)),),
        "",
        "",
    ),
}


def written(mesh, reporter, app="orders", namespace="shop"):
    logs = mesh.settings_of(group(app, namespace), reporter).logs
    return " ".join(log.path + (f"?{log.filter}" if log.filter else "") for log in logs)


@pytest.mark.parametrize("case", CASES)
def test_client_and_server_have_the_logs_of_their_level(case):
    settings, telemetries, client, server = CASES[case]
    mesh = Mesh(settings)
    put(mesh, *telemetries)
    assert written(mesh, CLIENT) == client
    assert written(mesh, SERVER) == server


def test_a_selector_in_the_root_namespace_is_at_workload_level():
    mesh = Mesh(NO_LOG)
    put(mesh, mesh_wide(rule("a")), Telemetry("x", ROOT, labels_of({"app": "gate"}), (rule("b"),)))
    assert (written(mesh, CLIENT, "gate", ROOT), written(mesh, CLIENT, "other", ROOT)) == ("/b", "/a")


def test_groups_with_equal_logs_share_one_value():
    mesh = Mesh(NO_LOG)
    put(mesh, mesh_wide(rule("a")), of_namespace(rule("b")))
    assert mesh.settings_of(group("x"), CLIENT) is mesh.settings_of(group("y"), CLIENT)
    assert mesh.settings_of(group("x", "bank"), CLIENT) is mesh.settings_of(group("x", "home"), CLIENT)
    assert mesh.settings_of(group("x"), CLIENT) != mesh.settings_of(group("x", "bank"), CLIENT)


def test_a_telemetry_touches_all_config_of_proxies_in_its_namespace():
    mesh = Mesh()
    assert put(mesh, of_workload()) == Touched(inbound=frozenset({"shop"}), scopes=frozenset({"shop"}))
    everywhere = frozenset({EVERYWHERE})
    assert put(mesh, mesh_wide()) == Touched(inbound=everywhere, scopes=everywhere)
