"""The kernel's network features: namespaces, links, interception rules, and processes inside a namespace.

This is the only package that configures the kernel's network. It works with addresses and users, and contains nothing
about the objects of a mesh.
"""
