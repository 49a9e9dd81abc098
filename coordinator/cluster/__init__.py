"""The cluster's metadata: topics, brokers, configuration, feature levels, producer ids.

In reading order: `view.py` (what the cluster is, as an immutable value), `topics.py` (names and replicas of
topics), `features.py` (which feature levels there are), `machine.py` (the one writer of the metadata of a
node alone), `metadata_image.py` and `image_topics.py` (views of a cluster whose metadata controllers write),
`producer_ids.py` (each id given out once), `partitioner.py` (which partition of an internal topic a key
belongs to).
"""
