# Everything starts from these: `make demo` and `make test` set up a fresh machine by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test check format proto bench clean

demo: $(STAMP)
	$(BIN)/python -m confide federation --nodes 50 --seed 1

# Five processes keep two cores busy: many tests wait for servers and for Flower.
test: check
	$(BIN)/python -m pytest -n 5 --no-loadscope-reorder

proto: $(STAMP)
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. confide/protocol/wire/wire.proto confide/protocol/wire/service.proto

check: $(STAMP)
	$(BIN)/python -m pytest --quiet --no-header -p no:cacheprovider tests/protocol/wire/test_wire.py -k generated_code --durations=0
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python benchmarks/local/local_methods.py
	$(BIN)/python benchmarks/speed/speed.py
	$(BIN)/python benchmarks/training/training.py
	$(BIN)/python benchmarks/training/engines.py
	$(BIN)/python benchmarks/training/noise.py
	$(BIN)/python benchmarks/central/quantile_mechanisms.py
	$(BIN)/python benchmarks/central/full_data.py --only memory

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Confide needs Python 3.11 or newer, found " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[client,train,simulation,server,dev]'
	touch $@

clean:
	rm -rf $(VENV) benchmarks/.peers out .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
