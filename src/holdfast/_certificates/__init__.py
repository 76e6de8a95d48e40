"""Can this prediction change? What is certain of fitted classifiers, ours and others, with all rounding accounted for."""
