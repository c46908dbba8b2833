"""Where a step's code runs."""
