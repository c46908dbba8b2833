"""The version of the log's language.

Writing and reading are separate, so that a fleet can be upgraded: every worker reads the new version before
any of them writes it. A run newer than `SPEC_READS` is left for a newer worker.
"""

SPEC = 6  # of new runs
SPEC_READS = 6  # the newest this code understands
