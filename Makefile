# The tools of the active environment are used: pip install -e '.[dev]'
.PHONY: check lint test format results

check: lint test

lint:
	ruff check
	ruff format --check
	mypy
	lint-imports

test:
	pytest -n 2

format:
	ruff check --fix
	ruff format

results:
	python -m benchmarks render
