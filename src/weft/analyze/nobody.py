"""Policies that hold for nobody: their labels are nobody's, or nothing runs in their namespace. Every sort of policy
that workloads are selected for is asked about here."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding, meant_labels, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.policy import Policy


def of_nobody(code: str, policy: Policy, facts: Facts, outcome: str) -> Iterator[Problem]:
    """`outcome`: what comes of it. Where nothing runs at all, who is selected is for others to know."""
    if not facts.runs or facts.chosen(policy.namespace, policy.selector):
        return
    root = facts.settings.root_namespace
    mesh_wide = policy.namespace == root
    if not mesh_wide and policy.namespace not in facts.runners:
        what = f"nothing runs in namespace {policy.namespace}: {outcome}"
        yield finding(code, policy.origin, "metadata.namespace", what, _meant_namespace(policy.namespace, facts))
        return
    places = facts.runners if mesh_wide else (policy.namespace,)
    known = (runner.labels for namespace in places for runner in facts.runners[namespace])
    where = "the mesh" if mesh_wide else f"namespace {policy.namespace}"
    what = f"no workload of {where} has the labels {written(policy.selector)}: {outcome}"
    yield finding(code, policy.origin, "spec.selector", what, meant_labels(policy.selector, known))


def _meant_namespace(name: str, facts: Facts) -> str:
    guess = did_you_mean(name, {*facts.runners, facts.settings.root_namespace})
    if name == "default" and not guess.startswith("did you"):
        return "an object without `metadata.namespace` is in namespace default; " + guess
    return guess
