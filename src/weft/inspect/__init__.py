"""Answers to questions about a mesh. Nothing in here serves a proxy or changes a mesh."""
