# Everything a person does with this repository. `make` alone explains itself.

.DEFAULT_GOAL := help
.PHONY: help build test demo lint bench root

# Debian keeps nft in /usr/sbin, which is not on everybody's PATH.
export PATH := $(PATH):/usr/sbin:/sbin

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

# Static binaries that run on any node. The version is handed in, so Go need not ask git for it, which it refuses to do when
# the clone belongs to another user.
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)'

# The race detector needs cgo, which Go turns off where there is no C compiler. Without it the same tests run.
RACE = $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-6s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

build: ## Build the proxy into bin/proxy
	$(BUILD) -o bin/proxy ./cmd/proxy

test: root ## Vet and run every test (needs root: they work in network namespaces of their own)
	.ci/install
	go vet ./...
	go test $(RACE) -timeout 20m ./...

# The demo replaces the recipe's shell, so that Ctrl-C reaches it and it can take its namespaces down.
demo: root build ## Watch connections stay in their zone, fail over and come back (needs root)
	$(BUILD) -o bin/demo ./e2e/demo
	@exec bin/demo --proxy bin/proxy

lint: ## Run golangci-lint, import rules included
	go tool -modfile=.lint/go.mod golangci-lint run

bench: root ## Measure syncs against a real kernel and print a table (needs root)
	go test -run '^$$' -bench . -benchtime 3x -timeout 60m ./e2e/bench

root:
	@[ "$$(id -u)" = 0 ] || { echo 'This creates network namespaces and needs root: sudo env PATH="$$PATH" make $(MAKECMDGOALS)' >&2; exit 1; }
