# One command a person runs, the same in CI. `make demo` and `make test` set up everything by themselves.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
CLIENTS := .venvs/clients
READY  := $(VENV)/.ready
TORCH  := torch==2.13.0
CASES  ?= ../shared/cases

.DEFAULT_GOAL := help
.PHONY: help setup clients demo test test-slow check peers sanitize soak schema-suite fuzz bench paper server-page \
	reference cases schemathesis disconnects memory clean

help:  ## the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## a virtual environment with everything that demo and tests need

$(READY): pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo \
		"Palmette needs Python 3.11 or newer, and $(PYTHON) isn't. Name another: make demo PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip --upgrade
	@echo "Installing Palmette and its dependencies into $(VENV) (once; torch is the large one) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check $(TORCH)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

clients: $(CLIENTS)/.ready  ## the agent frameworks that test-slow runs against a server, in an environment of their own

$(CLIENTS)/.ready: pyproject.toml
	@test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	@echo "Installing agent frameworks into $(CLIENTS) (once) …"
	@$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check -U pip
	@$(CLIENTS)/bin/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*project["optional-dependencies"]["clients"], sep="\n")' > $(CLIENTS)/requirements.txt
	@$(CLIENTS)/bin/python -m pip install -q --disable-pip-version-check -r $(CLIENTS)/requirements.txt
	@touch $@

demo: $(READY)  ## a multi-call agent program on the default model, and what the radix tree saved
	@$(BIN)/python examples/demo.py

test: $(READY)  ## the tests (at most 10 minutes)
	$(BIN)/python -m pytest -m "not slow and not gpu and not peers"

test-slow: $(READY) $(CLIENTS)/.ready  ## the tests that need the default model or minutes (at most 30 minutes)
	$(BIN)/python -m pytest -m "slow and not gpu and not peers"

check: $(READY)  ## types and style
	$(BIN)/mypy
	$(BIN)/ruff check lang runtime radix_cache kernels examples tests benchmarks
	$(BIN)/ruff format --check lang runtime radix_cache kernels examples tests benchmarks

peers: $(READY)  ## token ids and greedy continuations against llama.cpp (compiles it once, about 18 minutes)
	$(BIN)/python -c "from benchmarks.peers.llama_cpp import LlamaCppServer; LlamaCppServer().install()"
	$(BIN)/python -m pytest tests/peers -m peers -s -rs

sanitize: $(READY)  ## the native kernels' tests under the address and undefined-behaviour sanitizers (3 minutes of CPU)
	PYTHONPATH=.src $(BIN)/python -m tests.sanitize

soak: $(READY)  ## ten million random operations on the radix cache (about 5 minutes); ARGS="--seed 2"
	PYTHONPATH=.src $(BIN)/python -m tests.soak $(ARGS)

schema-suite: $(READY)  ## the JSON-Schema-Test-Suite against our JSON schemas; ARGS="--draft draft7 --log"
	PYTHONPATH=.src $(BIN)/python -m benchmarks.schema_suite $(ARGS)

fuzz: $(READY)  ## random patterns, schemas and grammars: an error or a grammar, never a crash; ARGS="--seconds 600 --seed 2"
	PYTHONPATH=.src $(BIN)/python -m tests.fuzz_regex $(ARGS)
	PYTHONPATH=.src $(BIN)/python -m tests.fuzz_schemas $(ARGS)

bench: $(READY)  ## the workloads on this machine; ARGS="--against llama-cpp,vllm" adds peers
	$(BIN)/python -m benchmarks.run $(ARGS)

paper: $(READY)  ## the paper's workloads as programs, beside the plain openai client; ARGS="--against palmette,vllm"
	PYTHONPATH=.src $(BIN)/python -m benchmarks.paper $(ARGS)

server-page: $(READY)  ## the tables of docs/server.md, from the schemas
	PYTHONPATH=.src:tests $(BIN)/python -m tests.server_page

reference: $(READY)  ## docs/reference.md, from the public names' docstrings and signatures
	PYTHONPATH=.src $(BIN)/python -m tests.reference_page

cases: $(READY)  ## the acceptance cases of CASES (../shared/cases) against three servers; ARGS="--only STP,JSN-05"
	PYTHONPATH=.src:tests $(BIN)/python -m tests.cases --cases $(CASES) $(ARGS)

schemathesis: $(READY)  ## random requests made from the server's own document; ARGS="--examples 200 --seed 2"
	@test -x $(VENV)s/schemathesis/bin/schemathesis || { $(PYTHON) -m venv $(VENV)s/schemathesis && \
		$(VENV)s/schemathesis/bin/python -m pip install -q --disable-pip-version-check schemathesis; }
	PYTHONPATH=.src:tests $(BIN)/python -m tests.run_schemathesis $(ARGS)

disconnects: $(READY)  ## 1,000 clients that go away at random moments, beside normal load; ARGS="--count 100 --model tiny"
	PYTHONPATH=.src:tests $(BIN)/python -m tests.disconnects $(ARGS)

memory: $(READY)  ## a server's memory after 1,000 and after 10,000 requests; ARGS="--count 5000"
	PYTHONPATH=.src:tests $(BIN)/python -m tests.memory $(ARGS)

clean:  ## everything that was built or installed here; downloads in the cache folder stay
	rm -rf $(VENV) .venvs build dist *.egg-info .src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
