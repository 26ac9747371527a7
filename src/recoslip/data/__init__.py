"""Layer 1: NodeGraph, what it is read from, and what follows from features and edges alone: vectors and partitions."""
