# Targets for people: serve, test, check, bench, test-reference, nightly. See README.md.
PYTHON ?= python3.11

.PHONY: links
links: ## symlinks that make this checkout importable as `odradek` (PYTHONPATH=build/links)
	@mkdir -p build/links/odradek
	@for f in wire storage coordinator apis server; do ln -sfn ../../../$$f build/links/odradek/$$f; done
	@ln -sfn ../../../spark_integration build/links/odradek/spark
	@for f in __init__.py __main__.py testing.py py.typed; do ln -sfn ../../../server/_root/$$f build/links/odradek/$$f; done
