"""Measurements of Coterie: quality against published tables, speed against peers."""
