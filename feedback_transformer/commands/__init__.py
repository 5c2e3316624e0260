"""The commands, a module each; `translate.py` has all that are for encoder-decoders."""
