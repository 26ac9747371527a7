"""A name -> a graph with a split, its true novel nodes and the settings of the paper for it."""
