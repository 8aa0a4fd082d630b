"""VCube-PB: reliable broadcast over the trees of VCube-PS, where publishers need not subscribe and any node may crash."""
