"""The same maths, faster: a whole block of Feedback Transformer steps as one function of tensors."""
