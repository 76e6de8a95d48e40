"""Certificates that predictions of fitted classifiers, ours and others, cannot change, with all rounding included."""
