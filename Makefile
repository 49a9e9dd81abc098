# Everything that a person or CI runs. `make help` lists it. Environments, jars and source packages live in a cache
# folder outside the checkout (ODRADEK_CACHE, else ~/.cache/odradek) and are made once.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
ENVIRONMENT = $(PYTHON) tools/environment.py
TEST_PYTHON = $$($(ENVIRONMENT) venv test)/bin/python
SUITES = $(TEST_PYTHON) -m tools.suites
LISTEN ?= 127.0.0.1:9092
BENCH ?=

.DEFAULT_GOAL := help
.PHONY: help serve test check ci coverage check-transactions test-reference nightly bench bench-spark dist clean links tools-present

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 18

serve: ## a broker on 127.0.0.1:9092 with its data in ./data (LISTEN=host:port for another address)
	@venv=$$($(ENVIRONMENT) venv serve) && exec $$venv/bin/odradek serve --listen $(LISTEN) --data-dir ./data

tools-present:
	@$(ENVIRONMENT) check

test: links ## what a stranger runs: the linters, our own tests, stories of clients, of Kafka and of Spark (6 minutes)
	@$(SUITES) --tier test

check: links ## what a developer runs before each commit: the linters and the tests of the pure layers (90 s)
	@$(SUITES) --tier check

ci: tools-present links ## all other suites of the day, which CI runs after `make test` (35 minutes)
	@$(SUITES) --tier ci

nightly: export ODRADEK_NIGHTLY = 1
nightly: tools-present links ## every suite, the clients also against Apache Kafka itself, and a long soak
	@$(SUITES) --tier nightly

test-reference: tools-present links ## the same requests to Apache Kafka 4.4.0 and to Odradek, answers compared
	@$(SUITES) reference

coverage: links ## per cent of lines and branches that tests/ runs in its own process; the page is build/reports/coverage
	@$(SUITES) coverage

check-transactions: tools-present links ## histories of clients under crashes, judged; bugs that are planted have to be found
	@$(SUITES) check-transactions

bench: tools-present links ## measures, both brokers where Kafka has the same to do; writes benchmarks/RESULTS.md (BENCH=--help)
	@python=$(TEST_PYTHON) && \
		$$python -m benchmarks --output benchmarks --work . $(BENCH)

bench-spark: tools-present links ## of these only Spark: its own connector with Apache Kafka and with Odradek
	@$(TEST_PYTHON) -m benchmarks --output benchmarks --work . --parts spark --rounds 3 $(BENCH)

dist: ## the sdist and the wheel, in dist/
	@$(TEST_PYTHON) -m tools.build_dists dist

clean: ## removes what was built inside the checkout (not ./data, not the cache)
	@rm -rf build dist ./*.egg-info */*.abi3.so */*/*.abi3.so */_*.c */*/_*.c .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find . -name __pycache__ -type d -prune -not -path './.git/*' -exec rm -rf {} +

links: ## symlinks that make this checkout importable as `odradek` (PYTHONPATH=build/links)
	@mkdir -p build/links/odradek
	@for f in wire config storage coordinator apis security client console commands server embedding offline; do ln -sfn ../../../$$f build/links/odradek/$$f; done
	@ln -sfn ../../../spark_integration build/links/odradek/spark
	@ln -sfn ../../spark_integration/_formats/odradek build/links/pyspark_odradek
	@ln -sfn ../../spark_integration/_formats/odradek_log build/links/pyspark_odradek_log
	@for f in __init__.py __main__.py testing.py py.typed; do ln -sfn ../../../server/_root/$$f build/links/odradek/$$f; done
