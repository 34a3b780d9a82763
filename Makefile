# All commands for this repository. `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help build lab-program programs installed check test demo lint bench xds-grpc-js xds-envoy xds-lab e2e e2e-power-loss e2e-soak e2e-kind e2e-upstream release test-arm64 lab lab-down lab-build root

# Debian keeps nft in /usr/sbin, which is not on every user's PATH.
export PATH := $(PATH):/usr/sbin:/sbin

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Static binaries that run on any node. The version is passed explicitly: Go would get it from git, which fails if the
# clone belongs to another user.
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

# Linters, tools, and tests without the race detector use the same build settings, so that nothing is compiled twice.
AS_BUILT := CGO_ENABLED=0 GOFLAGS='$(shell go env GOFLAGS) -trimpath'

# The race detector needs cgo, which Go disables without a C compiler. Then the same tests run without it.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# A release uses another folder, and does not build all programs for all systems.
BIN ?= bin
PROGRAMS ?= proxy webhook

build: $(PROGRAMS:%=build-%) ## Build bin/proxy and bin/webhook

build-%:
	$(BUILD) -o $(BIN)/$* ./cmd/$*

lab-program:
	$(BUILD) -o bin/lab ./e2e/lab

installed:
	.ci/install

# The programs that tests run; the tests compile nothing. Without service discovery, Prometheus has 243 packages fewer.
programs: installed build lab-program
	musl-gcc -static -O1 -Wall -o bin/lookup-musl e2e/dns/lookup/lookup.c
	$(BUILD) -o bin/pause ./e2e/lab/image/pause
	$(AS_BUILT) go build -modfile=.lint/go.mod -tags remove_all_sd -o bin/ \
		github.com/prometheus/prometheus/cmd/promtool github.com/prometheus/prometheus/cmd/prometheus
	$(KUSTOMIZE)

KUSTOMIZE := $(AS_BUILT) go build -modfile=.lint/go.mod -o bin/kustomize sigs.k8s.io/kustomize/kustomize/v5

# Packages whose tests need no cluster: all except benchmarks and the packages below e2e that start an API server.
WITHOUT_CLUSTER := ./cmd/... ./pkg/... ./release ./e2e/flows ./e2e/packets ./e2e/fabric ./e2e/probe ./e2e/demo

# Both parts always run, so that one run reports all errors. For unchanged packages Go uses cached results.
check: root programs ## Lint and run every test that needs no cluster (needs root); run it before each commit
	@status=0; $(MAKE) lint || status=1; \
	echo go test $(WITHOUT_CLUSTER); go test $(WITHOUT_CLUSTER) || status=1; exit $$status

test: root programs ## Run every test, including the suites in the lab (needs root)
	@.ci/tests $(RACE)

# The demo replaces the recipe's shell, so that it gets Ctrl-C and can remove its namespaces.
demo: root build ## Show connections that stay in their zone, fail over and back, respect a load bound, leave a zone, survive a node, and are counted (needs root)
	$(BUILD) -o bin/demo ./e2e/demo
	@exec bin/demo --proxy bin/proxy

# Packages that need no kernel; an emulator runs their tests (Debian's package qemu-user-static).
WITHOUT_KERNEL := ./pkg/policy/... ./pkg/model/... ./pkg/selection/... ./pkg/proxy/ruleset/... ./pkg/webhook/rules/...

test-arm64: ## Run the tests that need no kernel as programs for arm64 (needs qemu-aarch64-static)
	GOARCH=arm64 CGO_ENABLED=0 go test -exec qemu-aarch64-static -timeout 30m $(WITHOUT_KERNEL)

lint: ## Run golangci-lint
	$(AS_BUILT) go tool -modfile=.lint/go.mod golangci-lint run

bench: root ## Measure syncs, whole daemons, idle ones too, accounting, the webhook, DNS, xDS and demand, and print tables (needs root)
	go test -run '^$$' -bench . -benchtime 3x -timeout 60m ./e2e/bench
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/bench/daemons
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/bench/webhook
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/accounting
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/reachability
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/dns
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/xds
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./e2e/demand
	go test -run '^$$' -bench . -benchtime 1x -timeout 60m ./pkg/webhook/demand

# xDS tests that CI does not run: their programs are missing there, or they need a cluster of their own.
xds-grpc-js: ## Connect by xDS with grpc-js, which npm installs first (needs node)
	cd e2e/xds/grpc-js && npm ci --ignore-scripts --no-audit --no-fund
	go test -count=1 -tags grpcjs -run GRPCJS ./e2e/xds

xds-envoy: ## Test an Envoy that gets its endpoints by xDS: ENVOY=/path/to/envoy
	@test -x "$(ENVOY)" || { echo 'ENVOY="$(ENVOY)" is not a program: make xds-envoy ENVOY=/path/to/envoy' >&2; exit 2; }
	ENVOY='$(ENVOY)' go test -count=1 -tags envoy -run Envoy ./e2e/xds

# It always removes the lab.
xds-lab: root build lab-program ## Install manifests/xds in a lab of three nodes, where pods connect with the bootstrap in its README (needs root)
	go test -count=1 -tags lab -run InALab -timeout 15m -v ./e2e/xds

# The lab is removed even if the suites, or its own start, fail.
E2E = trap 'status=$$?; [ -n "$(KEEP)" ] || bin/lab down --dir bin/e2e || status=1; exit $$status' EXIT; trap 'exit 130' INT TERM; \
	bin/lab up --dir bin/e2e --nodes 6 --node-dns --settings secureMetricsBindAddress=0.0.0.0:10449 --install-webhook manifests/webhook/topology-slices \
	--webhook-components manifests/webhook/components/demand && KUBECONFIG=bin/e2e/kubeconfig \
	STOP_NODES='$(CURDIR)/bin/lab stop --dir $(CURDIR)/bin/e2e' START_NODES='$(CURDIR)/bin/lab start --dir $(CURDIR)/bin/e2e' $(AS_BUILT)

e2e: root build lab-program ## Run the suites in e2e/suites in a lab of six nodes (needs root; KEEP=1 keeps the lab)
	@$(E2E) LABEL_FILTER='!thorough$(if $(LABEL_FILTER), && ($(LABEL_FILTER)))' e2e/suites/run

e2e-soak: root build lab-program ## Cut the power of a node fourteen times in half an hour, while clients connect 200,000 times
	@$(E2E) LABEL_FILTER=soak TIMEOUT=1h e2e/suites/run

e2e-power-loss: root build lab-program ## Cut the power of nodes in such a lab, and count failures with Vicinity, and with kube-proxy next to it
	@trap 'status=$$?; [ -n "$(KEEP)" ] || bin/lab down --dir bin/e2e || status=1; exit $$status' EXIT; trap 'exit 130' INT TERM; \
	bin/lab up --dir bin/e2e --nodes 6 --kube-proxy --install manifests/beside-kube-proxy && KUBECONFIG=bin/e2e/kubeconfig \
	STOP_NODES='$(CURDIR)/bin/lab stop --dir $(CURDIR)/bin/e2e' START_NODES='$(CURDIR)/bin/lab start --dir $(CURDIR)/bin/e2e' \
	LABEL_FILTER=power-loss $(AS_BUILT) e2e/suites/run

e2e-kind: ## Run the same suites in kind (needs docker, kind, kubectl; without a registry: e2e/kind/README.md)
	e2e/kind/run

e2e-upstream: root build lab-program ## Run Kubernetes' own [sig-network] specs in a lab (needs root; PROXY=kube-proxy or none for a control)
	e2e/upstream/install
	$(BUILD) -o bin/upstream/upstream ./e2e/upstream
	@exec bin/upstream/upstream run $(if $(PROXY),--proxy $(PROXY)) $(if $(FOCUS),--focus '$(FOCUS)')

# The registry of a release's images.
REGISTRY ?= ghcr.io/vicinity-proxy

release: ## Make dist/ for a release: programs, images, manifests, SBOMs, checksums (VERSION=v0.1.0)
	$(KUSTOMIZE)
	@go run ./release --version '$(VERSION)' --registry '$(REGISTRY)'

NODES ?= 3

lab: root build lab-program ## Run a Kubernetes cluster with Vicinity on this machine (NODES=3; the first time builds it, needs root)
	bin/lab up --nodes $(NODES)

lab-down: root lab-program ## Stop and remove that cluster
	bin/lab down

lab-build: lab-program ## Build the cluster's programs only, into your cache folder (the first time about 8 minutes)
	bin/lab build

root:
	@[ "$$(id -u)" = 0 ] || { echo 'This creates network namespaces and needs root: sudo env PATH="$$PATH" make $(MAKECMDGOALS)' >&2; exit 1; }
