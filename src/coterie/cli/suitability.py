"""Stub."""


def check_suitable(*a, **k): ...
