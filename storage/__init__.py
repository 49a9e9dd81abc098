"""Record batches on disk: segments, indexes, producer state, recovery, cleaning. Imports `wire` only."""
