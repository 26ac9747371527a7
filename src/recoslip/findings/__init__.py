"""Fitted detector + graph -> which nodes are listed, what groups they form, why, and whether to believe it."""
