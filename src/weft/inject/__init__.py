"""Injection: a pod as somebody wrote it comes in, and the same pod with its proxy leaves, or why it gets none."""
