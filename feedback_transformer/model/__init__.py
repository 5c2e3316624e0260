"""The paper's method: cores with one contract, and the models made of them. Start with `feedback.py`."""
