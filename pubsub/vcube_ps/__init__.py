"""VCube-PS: a tree rooted at each publisher, computed from the hypercube among the subscribers of a topic."""
