"""Nodes and edges as files or data frames -> NodeGraph."""
