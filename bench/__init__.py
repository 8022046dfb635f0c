"""Benchmarks of weft. Each benchmark is a *rig*: a module with `run(effort, say)`, which measures something and
returns figures.

`python -m bench [NAME ...]`, as root, runs the rigs, prints a table of the figures and writes them to
`bench/results`. Nothing in `src/weft` imports this package.
"""
