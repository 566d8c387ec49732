"""Synthetic labelled data sets that the judge is trained on; ``universal.SyntheticPrior`` samples them."""
