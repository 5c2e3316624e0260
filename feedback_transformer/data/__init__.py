"""From episodes and corpora to the tensors a model reads."""
