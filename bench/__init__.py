"""The numbers of weft: rigs that measure, a table that a person reads, and results that are kept.

Run as `python -m bench [NAME ...]`, as root. Nothing in `src/weft` imports anything from here.
"""
