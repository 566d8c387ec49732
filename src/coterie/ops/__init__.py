"""Pure functions on tensors and arrays; no state."""
