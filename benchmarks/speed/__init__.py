"""Speed, as ratios to a peer or to the machine's own limit, all measured in one run."""
