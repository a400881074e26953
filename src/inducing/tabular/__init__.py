"""A table of data from end to end: a target is named, a model fitted and judged on rows it has not seen, and reported."""
