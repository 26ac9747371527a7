"""Layer 3: what follows from scores and counts: guarantees, groups, explanations, the verdict."""
