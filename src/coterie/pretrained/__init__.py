"""Weights that ship: the files, their index pretrained.toml, and registry.py, which loads them by name."""
