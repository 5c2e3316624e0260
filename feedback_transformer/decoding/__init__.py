"""Decoding, one token after the other, with `step`.

sampling.py    endless text, each token sampled from the model's distribution
beam.py        a target that ends, for a source: greedy, sampled, or by beam search
"""

from feedback_transformer.decoding.beam import Search, beam_search, sample
from feedback_transformer.decoding.sampling import BLOCK, Sampling, generate, text_pieces

__all__ = [
    "BLOCK",
    "Sampling",
    "Search",
    "beam_search",
    "generate",
    "sample",
    "text_pieces",
]
