"""The Envoy process: its binary, bootstrap, command line, admin API, and the validation of its configuration. No other
package contains these details. This package starts no process in a pod and uses no network namespaces."""
