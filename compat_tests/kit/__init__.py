"""What many suites share: threads and programs beside a test, a proxy, brokers that are killed, chance that
can be repeated, what readers and groups find at a broker, and Java, compiled and run.
"""
