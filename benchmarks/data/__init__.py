"""Real data for benchmarks, read from the folder COTERIE_DATA."""
