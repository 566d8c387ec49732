"""Weights that ship: the files, their index ``pretrained.toml``, and ``registry``, which loads them by name."""
