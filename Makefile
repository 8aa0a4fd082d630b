# Every target does its own set-up: .venv is made on first use, and again when pyproject.toml or requirements.lock changes or
# the tree has moved.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup lock test slow-short browser chat interop interop-cold interop-rust fuzz demo bench protobuf clean FORCE

BIN := .venv/bin
STAMP := .venv/.stamp
LOCK := requirements.lock
FOLDERS := bench examples overlays peer pubsub
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# The first that is new enough; a name on the PATH may be a launcher for a Python that is not there, so each is run.
PYTHON ?= $(shell for p in python3.11 python3 python3.12 python3.13 python3.14; do \
	"$$p" -c '$(NEW_ENOUGH)' 2>/dev/null && { echo "$$p"; break; }; done)

# The stamp holds the place of the tree: the programs in a .venv that was moved or copied still run the old one.
ifneq "$(shell cat $(STAMP) 2>/dev/null)" "$(CURDIR)"
MOVED := FORCE
endif

help:
	@echo 'make setup       .venv with all extras and the tools for development; leaves .venv/bin/weft'
	@echo 'make lock        requirements.lock, after a change in pyproject.toml; UPGRADE=1 takes the newest versions'
	@echo 'make test        ruff, mypy and all tests but the slow ones'
	@echo 'make slow-short  the slow tests, some minutes'
	@echo 'make chat        a chat in the browser; the terminal says how a friend joins'
	@echo 'make interop     weft with js-, py- and go-libp2p; what they need is kept in ~/.cache/weft-interop'
	@echo 'make interop-cold   the same, after emptying that cache'
	@echo 'make interop-rust   with rust-libp2p, which takes minutes to build'
	@echo 'make fuzz        every decoder for a minute each; what breaks one is kept in tests/fuzz/cases'
	@echo 'make demo        simulates, analyses on Spark, and writes weft-demo.html'
	@echo 'make bench       events per second and memory of the simulator'
	@echo 'make protobuf    the generated files of peer/libp2p/pb, after a change to a .proto there'
	@echo 'make clean       removes .venv, caches and builds'
	@echo 'PYTHON=...       the Python to make .venv with, 3.11 or newer'

setup: $(STAMP)

# uv trusts the certificates of the system, as pip does: a proxy may have its own.
UV := UV_SYSTEM_CERTS=1 $(BIN)/uv --quiet
INSTALL := $(UV) pip install --python $(BIN)/python

# pip brings the uv that the lock names. uv first tries what it has on this machine, which takes seconds. pip has the last try,
# because a machine may name its package index only to pip. An sdist has no links to the five folders, so they are made here.
$(STAMP): pyproject.toml $(LOCK) $(MOVED)
	@python="$(PYTHON)"; "$${python:-python3}" -c '$(NEW_ENOUGH)' || \
		{ echo 'weft needs Python 3.11 or newer; name one: make PYTHON=/path/to/python3.11' >&2; exit 1; }
	@echo 'setting up .venv'
	@"$(PYTHON)" -m venv --clear .venv
	@sed -n '/^uv==/,/[^\\]$$/p' $(LOCK) > .venv/uv.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .venv/uv.txt
	@$(INSTALL) --require-hashes --build-constraints $(LOCK) -r $(LOCK) --offline 2>/dev/null || \
		$(INSTALL) --require-hashes --build-constraints $(LOCK) -r $(LOCK) || \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@for folder in $(FOLDERS); do test -e src/libweft/$$folder || ln -s ../../$$folder src/libweft/$$folder; done
	@$(INSTALL) --offline --no-deps --no-build-isolation --editable .
	@pwd -P > $@

# The lock keeps the versions that it has, unless pyproject.toml no longer allows one.
lock: $(BIN)/uv
	$(UV) pip compile --universal --python-version 3.11 --all-extras --generate-hashes --no-annotate \
		--custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade) --output-file $(LOCK) pyproject.toml >/dev/null

$(BIN)/uv:
	@$(MAKE) --no-print-directory setup

FORCE:

test: $(STAMP)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check --quiet .
	$(BIN)/python -m mypy
	$(BIN)/python -m pytest -q -m 'not slow and not live' -n 2 --dist loadfile --durations=10
	$(BIN)/python -m tests.run_live -q -m 'live and not slow' -n 2 --dist loadfile --durations=10

slow-short: $(STAMP) browser
	$(BIN)/python -m pytest -q -m 'slow and not live' -n 2 --dist loadfile --durations=25 tests/quality
	$(BIN)/python -m pytest -q -m 'slow and not live' --durations=15 --ignore=tests/quality
	$(BIN)/python -m tests.run_live -q -m 'slow and live' --durations=15

browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y chromium >/dev/null; } || \
		echo 'no chromium, and it could not be installed: the tests of the chat page need it' >&2

chat: $(STAMP)
	$(BIN)/python -m libweft.examples.chat --name "$${NAME:-$$(id -un)}" --web

interop: $(STAMP)
	$(BIN)/python -m tests.run_live -q -m slow tests/interop

interop-cold: $(STAMP)
	$(BIN)/python -m tests.interop.foreign clean
	$(BIN)/python -m tests.interop.foreign install
	$(BIN)/python -m tests.run_live -q -m slow tests/interop

interop-rust: $(STAMP)
	$(BIN)/python -m tests.interop.foreign install rust
	$(BIN)/python -m tests.run_live -q -m slow tests/interop -k rust

fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz.run --seconds 60

demo: $(STAMP)
	$(BIN)/weft demo

bench: $(STAMP)
	$(BIN)/weft bench micro

# The compiler has a place of its own: code of its release loads with every protobuf from 6.30 on, that of a newer one would not.
protobuf:
	@"$(PYTHON)" -m venv --clear build/protoc
	@build/protoc/bin/python -m pip install --quiet --disable-pip-version-check grpcio-tools==1.72.2
	build/protoc/bin/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/libweft/peer/libp2p/pb/*.proto

clean:
	rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
