"""Cases that are timed, and what times them; `python benchmarks/run.py` runs them."""
