"""Pure functions that two or more methods use."""
