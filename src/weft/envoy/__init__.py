"""Envoy's process: the binary, its bootstrap, its command line, its admin API, and its own word on a configuration.

The only package that knows these. It starts nothing inside a pod by itself and knows no namespaces.
"""
