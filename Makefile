# clustermaster: build, demo, tests.
#
#   make            bin/clustermaster and the links beside it
#   make demo       a cluster of three masters with real minions, to play with
#   make test       every test that CI runs; installs what they need
#   make test-long  the long ones too; asks Salt whether its kept answers are still its own
#   make salt-answers  asks Salt anew for the answers that tests of commands and of the channel compare with
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

# vet has been run by then, on tests too.
TEST_FLAGS ?= -p 2 -timeout 30m -vet=off
# What is built and tested as it is shipped is compiled once.
PLAIN := CGO_ENABLED=0
# The packages that run real masters and minions, those that take longest first.
PROCESSES := e2e commands conformance faults

.PHONY: build demo test test-long test-only unit processes salt-answers bench bench-compare lint vet staticcheck generate venvs install-tests clean

build:
	@mkdir -p bin
	$(PLAIN) $(GO) build -trimpath -o bin/clustermaster ./cmd/clustermaster
	@for name in $(LINKS); do ln -sfn clustermaster bin/$$name; done

demo: build
	@scripts/demo.sh

# What a fresh Debian box lacks is installed first; what can't be is said, and
# the tests that need it say so when they are left out.
test: install-tests
	@$(MAKE) --no-print-directory vet staticcheck test-only

install-tests:
	@scripts/install-test-needs.sh

test-only: unit processes

# Once, under the race detector; that needs a C compiler.
unit:
	@PROCESSES="$(PROCESSES)" scripts/unit.sh $(TEST_FLAGS)

# The race detector would see only the test's own side of these.
processes: build
	$(PLAIN) $(GO) test -trimpath $(TEST_FLAGS) $(addprefix ./,$(PROCESSES))

test-long: install-tests build
	@scripts/venvs.sh "$(CLUSTERMASTER_SALT_VENVS)" 3006.0 3006.9 3007.1 || true
	CLUSTERMASTER_LONG=1 $(PLAIN) $(GO) test -trimpath -p 1 -timeout 60m ./...

salt-answers: install-tests build
	$(PLAIN) $(GO) test -trimpath -p 1 -timeout 60m ./commands -run 'TestCommands|TestReactions' -update
	$(PLAIN) $(GO) test -trimpath -p 1 -timeout 60m ./conformance -run 'TestMasterData|TestClearOrders$$|TestOrdersReachMinions' -update

# About 20 minutes; BENCH_FLAGS such as "--self --quick" make it what they say, and nothing is written.
bench: build
	@scripts/bench.sh $(BENCH_FLAGS)

# About 15 minutes; BENCH_FLAGS such as --rounds 1 --seconds 1 make it shorter.
bench-compare: install-tests build
	bin/clustermaster bench --compare "$(CLUSTERMASTER_SALT_VENVS)/salt-3008.3" --docs docs $(BENCH_FLAGS)

lint: vet staticcheck

vet:
	$(PLAIN) $(GO) vet -trimpath ./...

staticcheck:
	@scripts/staticcheck.sh $(STATICCHECK)

generate:
	@scripts/generate.sh $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)

venvs:
	@scripts/venvs.sh "$(CLUSTERMASTER_SALT_VENVS)"

clean:
	rm -rf bin
