"""One suite per published table; results are JSON lines, with the published numbers beside them."""
