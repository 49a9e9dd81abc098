"""Every option, declared once, and the sources of its value: file, environment, command line, run time.

Imports `wire` only. In reading order: `option.py` (the class of an option), `option_list.py` (all options),
`options.py` (look-up, layers, entries of DescribeConfigs), `changes.py` (IncrementalAlterConfigs),
`properties.py` (the syntax of files), `listeners.py` (addresses), `roles.py` (alone or in a cluster),
`cluster_config.py` (the cluster options of a node), `broker_config.py` (the options at the start), `live.py`
(the options at run time), `page.py` (the page of the documentation).
"""
