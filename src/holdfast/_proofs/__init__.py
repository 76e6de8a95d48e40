"""How near is a fit to the optimum? Lower bounds and gaps, recomputed from the data."""
