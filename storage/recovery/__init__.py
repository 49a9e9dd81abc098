"""Recovery of a log after a crash, a failed flush or damage. To be read in this order:

`recovery` (opens a log, and recovers it if the last stop was not clean), `rescan` (reads and writes a log
again after a failed flush), `log_walk` (every batch of a file that may be damaged).
"""
