"""What DAC, ABC and AMCP share: estimator base, filtering, labelled tasks, feature matching."""
