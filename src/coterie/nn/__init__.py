"""Layers that several methods share."""
