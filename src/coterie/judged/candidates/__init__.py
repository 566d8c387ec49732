"""Candidate partitions from classical algorithms; the registry lists them all."""
