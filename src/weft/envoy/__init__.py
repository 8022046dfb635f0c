"""Everything that weft needs to know about the Envoy process: its binary, bootstrap, command line, admin API, and
the validation of its configuration.

No other package knows these details. This package starts no process in a pod and knows no network namespaces.
"""
