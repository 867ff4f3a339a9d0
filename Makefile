# Two commands do everything, installs included: `make demo` and `make test`.
VENV := .venv
PYTHON_VENV := $(VENV)/bin/python
C_SOURCES = $(shell git ls-files '*.c' '*.h' '*.cpp' 2>/dev/null)

.PHONY: help install native demo test test-fast scenarios bench detection deb rpm test-matrix lint clean

help:
	@echo "make demo       the main job: a private Slurm cluster, a small GPT, one slow GPU, found and reported"
	@echo "make test       all tests (units, and one full path with real daemons)"
	@echo "make test-fast  the tests that need neither daemons nor a training"
	@echo "make scenarios  longer matrices on one cluster start"
	@echo "make bench      what Greyhound costs, as ratios from one run"
	@echo "make detection  how good detection is: writes docs/detection.md anew (about four minutes)"
	@echo "make deb, rpm   a package of everything but the plugin, into dist/"
	@echo "make test-matrix  plugin, record and report on other Slurm releases, each in a Debian of its own (root, debootstrap)"
	@echo "make lint       ruff, mypy --strict, clang-format"
	@echo "make install    .venv and all that the above need"

install:
	@sh scripts/install.sh

native:
	@sh hook/build.sh
	@$(MAKE) -s -C spank
	@$(MAKE) -s -C hook/standin

demo: install
	@$(PYTHON_VENV) -m greyhound.sandbox.demo $(DEMO_ARGS)

test: install
	@$(PYTHON_VENV) -m pytest tests $(TEST_ARGS)

test-fast: install
	@$(PYTHON_VENV) -m pytest tests -m "not cluster and not training" $(TEST_ARGS)

scenarios: install
	@$(PYTHON_VENV) -m pytest tests/scenarios tests/e2e/test_iteration_time.py tests/e2e/test_starts.py tests/selftest tests/megatron --scenarios $(TEST_ARGS)

bench: install
	@$(PYTHON_VENV) -m greyhound.bench

detection: install
	@$(PYTHON_VENV) -m greyhound.bench.detection

deb:
	@sh packaging/deb/build.sh

rpm:
	@sh packaging/rpm/build.sh

test-matrix:
	@sh scripts/test-matrix.sh $(SUITES)

lint: install
	@$(VENV)/bin/ruff check greyhound tests scripts setup.py
	@$(VENV)/bin/mypy
	@$(VENV)/bin/clang-format --dry-run --Werror $(C_SOURCES)

clean:
	rm -rf build greyhound/_native
