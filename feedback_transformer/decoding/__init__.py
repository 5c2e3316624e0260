"""Writing: one token after the other, all on `step`.

sampling.py    a text without end, each token drawn from what the model expects
beam.py        a target that ends, for a source: greedy, sampled, or the best of several beams
"""

from feedback_transformer.decoding.beam import Hypothesis, Search, beam_search, sample
from feedback_transformer.decoding.sampling import BLOCK, CONTEXT, Sampling, generate, text_pieces

__all__ = [
    "BLOCK",
    "CONTEXT",
    "Hypothesis",
    "Sampling",
    "Search",
    "beam_search",
    "generate",
    "sample",
    "text_pieces",
]
