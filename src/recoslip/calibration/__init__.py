"""Scores -> p-values, thresholds and shares. Nothing here trains."""
