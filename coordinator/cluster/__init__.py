"""The cluster's metadata: topics, brokers, configuration, feature levels, producer ids.

In reading order: `view.py` (what the cluster is, as an immutable value), `topics.py` (names and assigned
replicas of topics), `placement.py` (brokers for new replicas), `features.py` (which feature levels there
are), `publishing.py` (a new view reaches the node), `control_plane.py` (who decides, as the node sees it),
`changes.py`, `draft.py` and `decisions.py` (what requests want, and what they get), `machine.py` (the one
writer of the metadata of a node alone), `metadata_image.py` with `image_topics.py` (what the controllers of a
cluster have decided), `producer_ids.py` (each id given out once), `partitioner.py` (which partition of an
internal topic a key belongs to).
"""
