"""State machines over a log: groups, cluster metadata. A decision is a value. Imports `wire` only."""
