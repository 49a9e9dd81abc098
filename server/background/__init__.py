"""Work beside the requests: upkeep, compaction, watching of disks."""
