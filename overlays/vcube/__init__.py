"""VCube: a virtual hypercube that its nodes test and mend among themselves."""
