"""What many suites share: how Java sources are compiled and run, and Kafka's tools in a resident JVM."""
