"""Benchmarks side by side: the same workloads on this project's frontends, the libraries they stand on, and hand-written jax.

`benchmarks/run.py` is the command.  `models` says what is computed, `workloads_*` write it in each library, `peers` says who takes
part, `scenarios` what is timed, `child` runs one scenario of one peer in a process of its own, `measure` holds the clock, `runner`
the order, `targets` what the ratios should be, and `table`, `plot` and `page` show it.
"""
