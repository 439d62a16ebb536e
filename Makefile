# Needs Python >= 3.11 and make; everything else is installed into .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-all check format format-check lint types wheel release docs kill-test soak canary extras-test trl-test train-test real-test real-train ray-test elsewhere-test phoenix-test browser-test pictures bench proof clean

demo: $(READY)  ## The main job on the simulated endpoint
	$(BIN)/grpo-practice demo

# Without compiled files each worker rewrites every test, and each process compiles the package.
test test-all: export PYTHONDONTWRITEBYTECODE :=

test: $(READY)  ## The tests, but for the long ones; T=tests/llm runs a part
	$(BIN)/pytest -q -n auto --dist worksteal -m "not long" $(T)

test-all: test  ## The tests, and the long ones: benchmarks in small, endurance, workflows
	$(BIN)/pytest -q -n auto --dist worksteal -m long

check: format-check lint types test wheel  ## What has to pass before a commit

format: $(READY)  ## Format the source
	$(BIN)/ruff format src tests bench
	$(BIN)/ruff check -q --select I --fix src tests bench

format-check: $(READY)
	$(BIN)/ruff format --check src tests bench

lint: $(READY)
	$(BIN)/ruff check src tests bench

types: $(READY)
	$(BIN)/mypy

wheel: $(READY)  ## The wheel works without anything of development
	rm -rf .wheel && mkdir .wheel
	$(BIN)/pip wheel -q --no-deps -w .wheel .
	$(PYTHON) -m venv .wheel/venv
	.wheel/venv/bin/pip install -q --disable-pip-version-check .wheel/*.whl
	.wheel/venv/bin/grpo-practice --help
	cd .wheel && venv/bin/grpo-practice config validate --config math.yaml --set evaluation.agent.model.model_provider.model=sim
	rm -rf .wheel

release: $(READY)  ## Wheel and sdist in dist/, checked, and the README followed from the wheel
	$(BIN)/pip install -q --disable-pip-version-check --group release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/python -m tests.release

docs: export NO_MKDOCS_2_WARNING := 1
docs: $(READY)  ## The site in site/, with every link checked; `mkdocs serve` shows it while you write
	$(BIN)/pip install -q --disable-pip-version-check --group docs
	$(BIN)/mkdocs build --strict --quiet

kill-test: $(READY)  ## SIGKILL at 160 instants of commands that pay, resumed each time
	$(BIN)/python -m tests.endurance.kill

soak: $(READY)  ## 100,000 rollouts against an endpoint where one answer in five is a fault of 18 kinds
	$(BIN)/python -m tests.endurance.soak

canary: $(READY)  ## Every command under every fault, and no key in anything it leaves behind
	$(BIN)/python -m tests.canary.matrix

extras-test: $(READY)  ## Each extra in an environment of its own, and a command that needs it: gigabytes, minutes
	$(BIN)/python -m tests.extras

trl-test: $(READY)  ## TRL trains a tiny model on exported attempts; installs several GB below .programs
	$(BIN)/python -m tests.programs trl

train-test: $(READY)  ## Training with torch, TRL and PEFT; installs them below .programs, once
	$(BIN)/python -m tests.train.install
	PYTHONPATH=$(CURDIR)/src:$(CURDIR) OMP_NUM_THREADS=1 .programs/train/bin/python -m pytest -q -n 2 -o filterwarnings=default tests/train

real-test: $(READY)  ## A real model of 135M parameters, served here: half an hour; installs what it needs, once
	$(BIN)/python -m tests.real

real-train: $(READY)  ## docs/train.md, typed out: trains that model, and prints the table
	$(BIN)/python -m tests.real.training

ray-test: $(READY)  ## Agents on Ray, one node and two, in network namespaces that lead nowhere
	$(BIN)/python -m tests.ray

elsewhere-test: $(READY)  ## The tests on a stand-in for macOS, made of Linux namespaces
	$(BIN)/python -m tests.elsewhere $(T)

phoenix-test: $(READY)  ## Traces in a real Phoenix, installed into .phoenix/: 0.8 GB, minutes
	$(BIN)/python -m tests.phoenix

browser-test: $(READY)  ## Report and viewer in the system's Chromium: axe, no other hosts, keys alone
	$(BIN)/python -m tests.browser.install
	PYTHONPATH=.programs/browser $(BIN)/pytest -q -n 4 tests/browser

pictures: $(READY)  ## The demo's report and the end of its practice, as the README shows them
	$(BIN)/python -m tests.browser.install
	PYTHONPATH=.programs/browser $(BIN)/python -m tests.browser.pictures

bench: $(READY)  ## How fast, against what was to be reached; takes most of an hour
	$(BIN)/python -m bench

proof: $(READY)  ## Do verdicts keep what they promise? Simulated; takes minutes
	$(BIN)/python -m bench proof

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("error: Python 3.11 or newer is needed, and $(PYTHON) is %d.%d\nhint: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.11" % v[:2])'
	@echo "installing into .venv, once: this takes a minute or so"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check 'pip>=25.1'
	$(BIN)/pip install -q --disable-pip-version-check -e . --group dev
	touch $(READY)

clean:
	rm -rf .venv .wheel dist site
