"""Synthetic data sets that the judge is trained on."""
