"""Anything tabular -> a numeric matrix: `readers` (files), `table` (the Table type), `encoder` (columns to numbers)."""
