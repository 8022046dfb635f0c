"""Reasons for a resource: the objects behind each part of it, and the rules that decided it."""
