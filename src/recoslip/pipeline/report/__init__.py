"""Findings -> a self-contained HTML page."""
