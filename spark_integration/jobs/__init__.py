"""Jobs: each one command (`odradek spark JOB --help`) and one function, `odradek.spark.jobs.JOB.run(spark,
...)`.

The modules beside the jobs (`archive`, `verify`, `replay`, `mirror`, `latest`, `profile`) read topics and
tables (`topics`, `tables`, `decoding`, `scanning`), write tables (`querying`, `publishing`, `iceberg`,
`files`, `compaction`) and topics (`delivering`, `targets`, `offset_runs`, `carrying_over`), and compare
(`sides`).

pyspark is imported only when a job runs. A failure of a job is a `JobError` with one sentence.
"""

from odradek.spark.jobs.errors import JobError as JobError
