"""Every option, declared once, and where its value comes from: file, environment, command line, run time.

Imports `wire` only. In reading order: `option.py` (what an option is), `option_list.py` (all of them),
`options.py` (look-up, layers, what DescribeConfigs answers), `changes.py` (IncrementalAlterConfigs),
`properties.py` (the syntax of files), `listeners.py` (addresses), `roles.py` (alone or in a cluster),
`cluster_config.py` (what a node of a cluster knows of it), `broker_config.py` (what a broker starts with),
`live.py` (what it has while it runs), `page.py` (the page of the documentation).
"""
