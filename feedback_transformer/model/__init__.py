"""The paper's method: cores that follow one contract, and models made from them. Start with `feedback.py`."""
