# clustermaster: build, demo, tests.
#
#   make            bin/clustermaster and the links beside it
#   make demo       a cluster of three masters with real minions, to play with
#   make test       every test that CI runs; installs what they need
#   make test-long  the long ones too
#   make bench      figures of our own masters; writes docs/benchmarks.md and docs/growth.md
#   make bench-compare  Salt's own master and ours in turns; writes docs/performance.md
#   make lint       go vet and staticcheck
#   make generate   gRPC code from the .proto files (needs protobuf-compiler)
#   make venvs      Salt's releases for tests and demo, in .build/venvs

SHELL := /bin/bash
GO ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
PROTOC_GEN_GO := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
PROTOC_GEN_GO_GRPC := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

LINKS := salt-master salt salt-key salt-run salt-cp
export CLUSTERMASTER_SALT_VENVS ?= $(CURDIR)/.build/venvs

TEST_FLAGS ?= -p 2 -timeout 30m

.PHONY: build demo test test-long test-only race bench bench-compare lint vet staticcheck generate venvs install-tests clean

build:
	@mkdir -p bin
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/clustermaster ./cmd/clustermaster
	@for name in $(LINKS); do ln -sfn clustermaster bin/$$name; done

demo: build
	@scripts/demo.sh

# What a fresh Debian box lacks is installed first; what can't be is said, and
# the tests that need it say so when they are left out.
test: install-tests
	@$(MAKE) --no-print-directory vet staticcheck test-only race

install-tests:
	@scripts/install-test-needs.sh

# Packages e2e, faults, commands and conformance run real masters and minions, and mostly
# wait: they come last, two at a time, and have the machine for themselves.
test-only: build
	$(GO) test $(TEST_FLAGS) $$($(GO) list ./... | grep -v -e '/e2e$$' -e '/faults$$' -e '/commands$$' -e '/conformance$$')
	$(GO) test $(TEST_FLAGS) ./e2e ./commands ./conformance ./faults

test-long: install-tests build
	@scripts/venvs.sh "$(CLUSTERMASTER_SALT_VENVS)" 3006.0 3006.9 3007.1 || true
	CLUSTERMASTER_LONG=1 $(GO) test -p 1 -timeout 60m ./...

# The race detector needs a C compiler. The packages that run real processes are
# left out: the detector sees only the test's own side of them.
race:
	@if [ "$$($(GO) env CGO_ENABLED)" = 1 ] && command -v "$$($(GO) env CC)" >/dev/null; then \
		scripts/race.sh $(TEST_FLAGS); \
	else \
		echo "left out: go test -race (no C compiler; apt-get install gcc)"; \
	fi

# About 20 minutes; BENCH_FLAGS such as "--self --quick" make it what they say, and nothing is written.
bench: build
	@scripts/bench.sh $(BENCH_FLAGS)

# About 15 minutes; BENCH_FLAGS such as --rounds 1 --seconds 1 make it shorter.
bench-compare: install-tests build
	bin/clustermaster bench --compare "$(CLUSTERMASTER_SALT_VENVS)/salt-3008.3" --docs docs $(BENCH_FLAGS)

lint: vet staticcheck

vet:
	$(GO) vet ./...

staticcheck:
	@scripts/staticcheck.sh $(STATICCHECK)

generate:
	@scripts/generate.sh $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)

venvs:
	@scripts/venvs.sh "$(CLUSTERMASTER_SALT_VENVS)"

clean:
	rm -rf bin
