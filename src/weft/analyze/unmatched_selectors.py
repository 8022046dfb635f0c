"""Findings about policies that select no workload: no workload has their labels, or no workload runs in their
namespace. Used for every kind of policy with a selector."""

from __future__ import annotations

from collections.abc import Iterator

from weft.analyze.facts import Facts
from weft.analyze.finding import finding, meant_labels, written
from weft.base.problem import Problem
from weft.base.suggest import did_you_mean
from weft.model.policy import Policy


def selects_nothing(code: str, policy: Policy, facts: Facts, outcome: str) -> Iterator[Problem]:
    """The finding with this code about a policy that selects no workload. `outcome`: the effect, for the message. No
    finding if no workload is known at all."""
    if not facts.runs or facts.chosen(policy.namespace, policy.selector):
        return
    root = facts.settings.root_namespace
    mesh_wide = policy.namespace == root
    if not mesh_wide and policy.namespace not in facts.runners:
        what = f"no workload runs in namespace {policy.namespace}: {outcome}"
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
