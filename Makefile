# clustermaster: build, demo, tests.
#
#   make            bin/clustermaster and the links beside it
#   make demo       a cluster of three masters with real minions, to play with
#   make test       every test that CI runs; installs what they need
#   make test-long  the long ones too; asks Salt whether its kept answers are still its own; PARTS="sim faults" some
#   make salt-answers  asks Salt anew for the answers that tests of commands and of the channel compare with
#   make repeat RUNS=20 LOAD="stress --cpu 1 --vm 1"  make test so often, beside that load; rows in docs/testing.md
#   make bench      figures of our own masters; writes docs/benchmarks.md and docs/growth.md
#   make bench-compare  Salt's own master and ours in turns; writes docs/performance.md
#   make dashboard-picture  a cluster under load that loses its leader, as the dashboard shows it; writes docs/monitoring-dashboard.svg
#   make scale      a hundred masters and a million minions, simulated; writes docs/scale.md
#   make packages  deb and rpm packages for amd64 and arm64, in dist/
#   make test-packages  tries them in a Debian root of their own
#   make release   archives, packages, SBOMs, checksums and their signature in dist/release; RELEASE_KEY=PATH of an ssh key
#   make reproduce  builds a release twice and compares the bytes
#   make test-containers  builds the image, runs the compose file and the StatefulSet's pods under podman; needs root
#   make known-bugs  the simulator against bugs that are put back; BUG=stale-reads one of them
#   make mutations  puts faults into a copy of the sources, one at a time; a test must find each; ONLY=founder some
#   make salt-suite  Salt's own tests against our master and against Salt's; FILE=integration/cli/test_salt_key.py some
#   make soak HOURS=1  real masters under load and faults for so long; writes docs/soak.md
#   make fuzz       every fuzz target for a minute, or FUZZTIME; FUZZ_PACKAGES=./wire those of some packages,
#                   FUZZ_PARALLEL=1 with one worker process
#   make changelog  CHANGELOG.md of docs/changes/; VERSION=0.2.0 releases what is in docs/changes/next
#   make references  the pages of docs/ that are made of the code
#   make lint       go vet, the words and columns of docs/style.md, staticcheck, golangci-lint and govulncheck
#   make generate   gRPC code from the .proto files (needs protobuf-compiler)
#   make venvs      Salt's releases for tests and demo, in .build/venvs

SHELL := /bin/bash
GO ?= go
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE := golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
PROTOC_GEN_GO := google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
NFPM := v2.45.0
PROTOC_GEN_GO_GRPC := google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2

LINKS := salt-master salt salt-key salt-run salt-cp
export CLUSTERMASTER_SALT_VENVS ?= $(CURDIR)/.build/venvs

# vet has been run by then, on tests too. The timeout ends what hangs; a slow machine needs more than half an hour for a package.
# Without tables for debuggers (-w) linking takes about half the time, and there are more than a hundred programs to link.
TEST_FLAGS ?= -timeout 60m -vet=off -ldflags=-w $(ALSO)
# Runs each NAME=COMMAND whatever became of those before, and says at the end what failed and what was left out. With CI=true
# only reasons in .ci/skips may leave something out. AGAIN=N runs up to N failed tests again, alone, and names those that pass.
REPORT = CGO_ENABLED=0 $(GO) run -trimpath ./tools/testreport -allow .ci/skips $(if $(AGAIN),-again $(AGAIN) -with tools/scripts/again.sh)
SUBMAKE = $(MAKE) --no-print-directory
# What is built and tested as it is shipped is compiled once.
PLAIN := CGO_ENABLED=0
# The packages that run real masters and minions, those that take longest first, and the simulator,
# which takes ten times as long under the race detector.
PROCESSES := conformance e2e commands faults sim
# Measures the wall clock, so nothing runs beside it.
SERIAL := failover

.PHONY: repeat build test-containers release reproduce packages test-packages demo test test-long test-only unit failover processes salt-answers bench bench-compare fuzz mutations salt-suite lint style vet staticcheck govulncheck generate venvs install-tests clean

build:
	@mkdir -p bin
	$(PLAIN) $(GO) build -trimpath -o bin/clustermaster ./cmd/clustermaster
	@for name in $(LINKS); do ln -sfn clustermaster bin/$$name; done

# The program with the race detector, and with counters of what runs.
.PHONY: raced
raced:
	@mkdir -p bin/raced
	@tools/scripts/raced-build.sh bin/raced/clustermaster
	@for name in $(LINKS); do ln -sfn clustermaster bin/raced/$$name; done

demo: build
	@tools/scripts/demo.sh

# What a fresh Debian box lacks is installed first; what can't be is said, and
# the tests that need it say so when they are left out.
test:
	@$(REPORT) 'needs=tools/scripts/install-test-needs.sh' 'vet=$(SUBMAKE) vet' 'staticcheck=$(SUBMAKE) staticcheck' $(UNIT) $(ALONE) $(BLACK_BOX)

install-tests:
	@tools/scripts/install-test-needs.sh

test-only:
	@$(REPORT) $(UNIT) $(ALONE) $(BLACK_BOX)

# Once, under the race detector; that needs a C compiler. Three packages run at a time: most of them wait.
UNIT = 'unit=PROCESSES="$(PROCESSES) $(SERIAL)" tools/scripts/unit.sh -json -p 3 $(TEST_FLAGS)'
unit:
	@$(REPORT) $(UNIT)

# The race detector would see only the test's own side of these. All packages run at a time: their tests take turns (test/e2e/turn.go).
BLACK_BOX = 'processes=$(SUBMAKE) build && $(PLAIN) $(GO) test -json -trimpath -p $(words $(PROCESSES)) $(TEST_FLAGS) $(addprefix ./test/,$(PROCESSES))'
processes:
	@$(REPORT) $(BLACK_BOX)

ALONE = 'failover=$(PLAIN) $(GO) test -json -trimpath $(TEST_FLAGS) $(addprefix ./test/,$(SERIAL))'
failover:
	@$(REPORT) $(ALONE)

# Each run takes about half an hour; LOAD may be any shell command that goes on or may begin again.
RUNS ?= 1
repeat:
	@MAKE="$(MAKE)" tools/scripts/repeat.sh "$(RUNS)" "$(LOAD)"

# The long forms too, in parts, each with a row in the table of docs/testing.md; PARTS="sim faults" runs some, RUN=TestSaltAPI
# what matches of them, without a row.
PARTS ?= unit $(SERIAL) $(PROCESSES) containers
# Time in the simulator is not the machine's, and the other parts often wait: it runs beside them and takes what they leave.
BESIDE := sim
ORDER = $(filter $(SERIAL),$(PARTS)) $(filter $(BESIDE),$(PARTS)) $(filter-out $(SERIAL) $(BESIDE),$(PARTS))
LONG_TEST = CLUSTERMASTER_LONG=1 $(PLAIN) $(GO) test -json -trimpath -count 1 -p 1 -timeout 90m $(if $(RUN),-run "$(RUN)")
LONG_unit = $(subst -p 1,-p 2,$(LONG_TEST)) $$($(GO) list ./... | grep -v -e /tools/containers$$ $(patsubst %,-e /test/%$$,$(SERIAL) $(PROCESSES)))
LONG_sim = nice -n 19 env $(subst -timeout 90m,-timeout 170m,$(LONG_TEST)) ./test/sim
LONG_containers = $(LONG_TEST) ./tools/containers
LONG_$(SERIAL) = $(LONG_TEST) ./test/$(SERIAL)
# Their masters and commands run under the race detector and write what they covered; those of SERIAL are measured by the clock.
RACED := e2e commands conformance faults
$(foreach part,$(RACED),$(eval LONG_$(part) = tools/scripts/raced-part.sh $(part) env $$(LONG_TEST) ./test/$(part)))
test-long:
	@$(REPORT) $(if $(RUN),-filtered,-diary docs/testing.md) 'needs=tools/scripts/install-test-needs.sh; tools/scripts/venvs.sh "$(CLUSTERMASTER_SALT_VENVS)" 3006.0 3006.9 3007.1 || true; tools/scripts/exporter.sh "$(CLUSTERMASTER_SALT_VENVS)" || true' \
		'build=$(SUBMAKE) build $(if $(filter $(RACED),$(PARTS)),raced)' $(foreach part,$(ORDER),'$(part)$(if $(filter $(part),$(BESIDE)),&)=$(LONG_$(part))')

salt-answers: install-tests build
	$(PLAIN) $(GO) test -trimpath -p 1 -timeout 60m ./test/commands -run 'TestCommands|TestReactions|TestEventReturn|TestJobCaches|TestOtherDatabases|TestMariaDBEvents|TestPython$$|TestSSH|TestOrchestrations|TestSiteTree' -update
	$(PLAIN) $(GO) test -trimpath -p 1 -timeout 60m ./test/conformance -run 'TestMasterData|TestClearOrders$$|TestOrdersReachMinions|TestOptions$$|TestNewBranches' -update

# About 20 minutes; BENCH_FLAGS such as "--self --quick" make it what they say, and nothing is written.
bench: build
	@tools/scripts/bench.sh $(BENCH_FLAGS)

# About 15 minutes; BENCH_FLAGS such as --rounds 1 --seconds 1 make it shorter.
bench-compare: install-tests build
	@mkdir -p .build/figures
	bin/clustermaster bench --compare "$(CLUSTERMASTER_SALT_VENVS)/salt-3008.3" --json .build/figures/comparison.json $(BENCH_FLAGS)
	$(PLAIN) $(GO) run -trimpath ./tools/pages --docs docs .build/figures/comparison.json

# About 20 seconds and 3 GB.
.PHONY: scale
scale: build
	@mkdir -p .build/figures
	bin/clustermaster simulate --json .build/figures/simulation.json
	$(PLAIN) $(GO) run -trimpath ./tools/pages --docs docs --simulation .build/figures/simulation.json

# About 9 minutes; needs Debian's prometheus and haproxy, and Salt's releases for minions.
.PHONY: dashboard-picture
dashboard-picture: install-tests build
	@mkdir -p .build/figures; rm -f .build/figures/dashboard.json
	CLUSTERMASTER_LONG=1 CLUSTERMASTER_DASHBOARD_FILE=$(CURDIR)/.build/figures/dashboard.json \
		$(PLAIN) $(GO) test -trimpath -count=1 -timeout 30m ./test/e2e -run 'TestDashboardPicture$$' -v
	$(PLAIN) $(GO) run -trimpath ./tools/pages --docs docs --dashboard .build/figures/dashboard.json

lint: vet style staticcheck golangci govulncheck

.PHONY: golangci deadcode
golangci:
	@tools/scripts/golangci.sh $(GOLANGCI)

# Functions that neither a program nor a test reaches.
deadcode:
	@CGO_ENABLED=0 GOFLAGS=-trimpath "$$(tools/scripts/gotool.sh $(DEADCODE))" -test ./...

style:
	$(PLAIN) $(GO) test -trimpath -run TestStyle .

vet:
	$(PLAIN) $(GO) vet -trimpath ./...

staticcheck:
	@tools/scripts/staticcheck.sh $(STATICCHECK)

govulncheck:
	@tools/scripts/govulncheck.sh $(GOVULNCHECK)

mutations:
	$(PLAIN) $(GO) run -trimpath ./tools/mutate -page docs/testing.md $(if $(ONLY),-only "$(ONLY)")

# What fails is run once more, alone, on both sides.
SALT_SUITE = test/saltsuite/referee $(addprefix --only ,$(FILE)) $(addprefix --jobs ,$(JOBS))
SALT_SUITE_OURS = .build/saltsuite/ours.json
SALT_SUITE_SALTS = .build/saltsuite/salts.json
salt-suite: build
	@mkdir -p .build/saltsuite && rm -f $(SALT_SUITE_OURS) $(SALT_SUITE_SALTS)
	@$(SALT_SUITE) --peer --json $(SALT_SUITE_SALTS)
	@$(SALT_SUITE) --peer --json $(SALT_SUITE_SALTS) --again
	@$(SALT_SUITE) --bin bin --json $(SALT_SUITE_OURS)
	@$(SALT_SUITE) --bin bin --json $(SALT_SUITE_OURS) --again
	@test/saltsuite/referee --record $(SALT_SUITE_OURS) $(SALT_SUITE_SALTS)

# Needs root, for network namespaces and file systems. SEED repeats the choices of a run.
.PHONY: soak
HOURS ?= 1
soak: build
	@mkdir -p .build/figures; rm -f .build/figures/soak.json
	CLUSTERMASTER_SOAK=$(HOURS)h CLUSTERMASTER_SOAK_FILE=$(CURDIR)/.build/figures/soak.json $(if $(SEED),CLUSTERMASTER_SEED=$(SEED)) \
		$(PLAIN) $(GO) test -trimpath -count=1 -timeout 0 ./test/faults -run 'TestSoak$$' -v
	$(PLAIN) $(GO) run -trimpath ./tools/pages --docs docs --soak .build/figures/soak.json

FUZZTIME ?= 60s
fuzz:
	@FUZZ_PARALLEL=$(FUZZ_PARALLEL) tools/scripts/fuzz.sh $(FUZZTIME) $(FUZZ_PACKAGES)

# Installs, upgrades, removes and purges them in a Debian root of its own; needs root.
test-packages: packages
	@tools/packaging/try.sh

test-containers: build
	@tools/containers/try.sh

release:
	@tools/release/release.sh $(NFPM)

# Puts known bugs back, one at a time, and says how many seeds the simulator needs to find each.
.PHONY: known-bugs
known-bugs:
	CLUSTERMASTER_LONG=1 $(PLAIN) $(GO) test -trimpath -tags knownbugs -timeout 120m -count 1 ./test/sim -run TestKnownBug -bug=$(BUG) -v

reproduce:
	@tools/release/reproduce.sh $(NFPM)

packages:
	@tools/packaging/build.sh $(NFPM)

generate:
	@tools/scripts/generate.sh $(PROTOC_GEN_GO) $(PROTOC_GEN_GO_GRPC)

# Files of docs/changes/ to CHANGELOG.md; VERSION=0.2.0 releases the next ones.
.PHONY: changelog
changelog:
	$(PLAIN) $(GO) run -trimpath ./tools/changelog $(VERSION)

# Pages of docs/ that are made of the code; tests compare them.
.PHONY: references
references:
	$(PLAIN) $(GO) test -trimpath ./config -run TestOptionsAreDocumented -update-options
	$(PLAIN) $(GO) test -trimpath ./cluster/fsm -run TestLimitsAreDocumented -update-limits
	$(PLAIN) $(GO) test -trimpath ./cmd/clustermaster -run 'AreDocumented$$' -update-metrics -update-functions

venvs:
	@tools/scripts/venvs.sh "$(CLUSTERMASTER_SALT_VENVS)"

clean:
	rm -rf bin
