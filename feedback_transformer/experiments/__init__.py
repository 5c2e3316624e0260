"""The paper's experiments, one file each, and the demonstration."""
