"""Real data: reading files, turning tables into numbers, and the benchmark sets."""
