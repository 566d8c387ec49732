"""Numbers that describe a candidate partition, as named columns for the judge."""
