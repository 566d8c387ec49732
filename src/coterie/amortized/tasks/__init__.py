"""Samplers of labelled data sets that set networks are trained on."""
