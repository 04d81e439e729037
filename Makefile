# Fairlead. `make demo` and `make test` do their own set-up on a bare machine
# (Debian or Ubuntu with Go 1.26; root, for network namespaces). `make help` lists all.
SHELL := /bin/bash
MODE ?= nftables
BIN := bin/fairlead
CACHE := $(CURDIR)/.cache
GO ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
export FAIRLEAD_BIN := $(CURDIR)/$(BIN)

# Packages whose tests program a real kernel, in namespaces that they create.
KERNEL_PKGS := ./internal/kernel/... ./internal/dataplane/... ./internal/conntrack/... ./internal/node/... ./test/netlab/... ./test/scenarios/... ./test/takeover/...

.DEFAULT_GOAL := help
.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: deps
deps: ## install the programs that the lab needs, if they are missing
	@bash scripts/deps.sh

.PHONY: build
build: ## build bin/fairlead (static)
	@CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/fairlead

.PHONY: lab
lab: deps build
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/fairlead-lab ./cmd/fairlead-lab

.PHONY: demo
demo: lab ## demonstration: a lab of namespaces, real requests, repair of drift, restart
	@bin/fairlead-lab demo

.PHONY: demo-rootless
demo-rootless: build ## userspace mode on this machine, without root or preparation: names, a dead backend, a restart
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/fairlead-lab ./cmd/fairlead-lab
	@bin/fairlead-lab demo-rootless

.PHONY: test
test: ## unit, property, real kernel, real API server, a stock kernel, in ten minutes (SKIP_VM=1: without that)
	@bash scripts/test.sh short

.PHONY: test-all
test-all: ## every test: all variants, both stock kernels, kube-proxy, the image, deploy/, the page in a browser
	@bash scripts/test.sh all

.PHONY: test-flaky
test-flaky: deps build ## run a package's tests 20 times, concurrently with 8 busy processes: PKG=./internal/relay [RUN=regexp] [TIMES=20] [BUSY=8]
	@bash scripts/flaky.sh "$(PKG)" "$(RUN)"

.PHONY: test-vm
test-vm: ## run only the tests under stock kernels 6.1 and 6.12: [RUN=regexp of lines in test/vm/tests.txt] [PART=/sub-test] [COUNT=10]
	@RUN="$(RUN)" PART="$(PART)" COUNT="$(COUNT)" bash test/vm/tests.sh

.PHONY: conformance
conformance: lab ## the scenario kit: MODE=nftables [SUBJECT=kube-proxy] [RUN=regexp] [KERNEL=6.1|6.12]
	@bash scripts/conformance.sh "$(MODE)" "$(SUBJECT)" "$(RUN)"

.PHONY: image
image: ## the container image, without a daemon: bin/image (OCI layout, binaries, SPDX, checksums)
	@cd scripts/image && SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" $(GO) run . -version "$(VERSION)" -revision "$$(git rev-parse HEAD)"
	@cat bin/image/SHA256SUMS

.PHONY: image-iptables
image-iptables: ## the same, and a second image with iptables and nftables for the iptables modes; downloads packages with apt-get
	@bash scripts/image/programs.sh bin/image-debs amd64 arm64
	@cd scripts/image && SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct)" $(GO) run . -version "$(VERSION)" -revision "$$(git rev-parse HEAD)" -programs ../../bin/image-debs
	@cat bin/image/SHA256SUMS

SOAK ?= 5m
.PHONY: soak
soak: deps build ## random changes under real traffic: SOAK=60s for a short one
	@CGO_ENABLED=0 $(GO) build -trimpath -o bin/soak ./test/soak && bin/soak -bin $(BIN) -for $(SOAK)

.PHONY: bench
bench: deps build ## sync, memory, answers of the commands: [SIZES="1000 10000"] [COMMANDS=10000] [MODE=iptables-nft: compared with kube-proxy]
	@bash scripts/bench.sh "$(MODE)"

.PHONY: bench-peers
bench-peers: deps build ## compare with upstream kube-proxy on one API server: SIZES="1000 10000" E=10
	@bash bench/peers/run.sh

.PHONY: bench-userspace
bench-userspace: ## compare userspace mode with HAProxy and nginx: FOR=2s ROUNDS=3 OUT=file (one minute)
	@bash bench/userspace/run.sh

.PHONY: abuse-userspace
abuse-userspace: ## userspace mode: effect of a storm, silent endpoints and clients that never read on another Service: FOR=60s ROUNDS=1 RATE=50000 (5 minutes)
	@bash bench/userspace/abuse.sh

.PHONY: bench-modes
bench-modes: deps build ## compare the modes with kube-proxy's, by the number of Services, in a machine that counts instructions: SIZES MODES AB (hours)
	@bash bench/modes/run.sh

.PHONY: bench-acceleration
bench-acceleration: ## KEP-4963's evaluation by instruction count, in an emulator: KERNEL=6.1 ROUNDS=5 PARTS=thresholds,placement,crossover SCALE=1 SIZES=bytes,... (an hour)
	@bash bench/acceleration/run.sh

.PHONY: experiment-headless
experiment-headless: deps ## the 40-140 s experiment: real ZeroMQ, CoreDNS compared with Fairlead's DNS (10 min a round)
	@bash test/headless/run.sh

.PHONY: lint
lint: ## gofmt, vet, staticcheck, the import table
	@bash scripts/lint.sh

.PHONY: release-check
release-check: ## known vulnerabilities, third-party notices (needs the network; not part of make test)
	@bash scripts/release-check.sh

.PHONY: fmt
fmt: ## run gofmt on all files
	@gofmt -w $$(git ls-files '*.go')

.PHONY: clean
clean: ## remove build output (and the cache of Kubernetes binaries)
	@rm -rf bin $(CACHE) bench/results

PKG ?= policy,engine,delta
SAMPLE ?= 100
SEED ?= 1
.PHONY: mutate
mutate: ## find mutants of the source that the package tests do not detect (as root): PKG=policy[,engine,...|all] SAMPLE=100 (0 = every mutant) SEED=1 KERNEL=1
	@$(GO) run ./test/mutate -pkg "$(PKG)" -sample $(SAMPLE) -seed $(SEED) $(if $(KERNEL),-kernel)

.PHONY: pictures
pictures: deps build ## the pictures of the status page and of the board in docs/operate (needs chromium; not part of make test)
	@bash scripts/pictures.sh
	@bash scripts/board.sh
