"""Anything tabular to a numeric matrix: readers, the Table type, and the encoder that turns columns into numbers."""
