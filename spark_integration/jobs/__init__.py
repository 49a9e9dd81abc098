"""Jobs: each one command (`odradek spark JOB --help`) and one function, `odradek.spark.jobs.JOB.run(spark,
...)`.

Nothing here imports pyspark before a job runs. What a job cannot do is a `JobError`, one sentence.
"""

from odradek.spark.jobs.errors import JobError

__all__ = ["JobError"]
