"""Turns episodes and corpora into the tensors that a model reads."""
