"""The kernel's network: namespaces, links, interception rules, and processes that live inside them.

The only package that speaks to the kernel about networks. It knows addresses and users, but no mesh resource.
"""
