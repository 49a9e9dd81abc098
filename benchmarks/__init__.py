"""Side-by-side measurements against Apache Kafka; `python -m benchmarks` runs them (see __main__)."""
