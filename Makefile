# The verbs of this project. A fresh machine needs Rust, Go, make and root; `setup` installs the
# few Debian packages besides.
.PHONY: demo shell down test sim mutants check e2e soak bless image release bench setup
TESTBED = cargo run --quiet --example testbed --
# Its tests mostly wait, and each for its turn on the machine.
E2E = SLOW=1 cargo test --test e2e -- --test-threads 99

demo: setup ## a real Kubernetes on this machine, the operator in it, a cluster with keys
	@echo "demo: the first time, the operator and a Kubernetes are compiled: about 15 minutes on two"
	@echo "      cores, with progress; later it takes less than a minute"
	cargo build --bins --examples && $(TESTBED) demo

shell: ## kubectl and valkey-cli in the demo
	$(TESTBED) shell

down: ## end the demo without a trace
	$(TESTBED) down

test: setup ## every test, the slow ones too
	@echo "test: fast suites first, then those on real Valkey processes and on a real Kubernetes; what"
	@echo "      is not built yet (about 15 minutes on two cores) is built first, with progress"
	$(TESTBED) prepare && cargo test --lib --bins --test it && cargo test --test sim -- --nocapture \
	  && cargo test --test valkey && $(E2E)

# REACH='why Hung' looks for the first run that comes by a rung, an action, a why or an error.
sim: setup ## the simulator alone; SEEDS=n for so many, RUN=12:3x1:0,4 to be told one run
	SEEDS=$(SEEDS) RUN=$(RUN) REACH="$(REACH)" \
	  cargo test --test sim $(if $(RUN),swarm::replay,$(if $(REACH),swarm::reach)) -- --nocapture

mutants: setup ## a test of the tests: known bugs put back, one by one
	cargo run --example mutants

check: setup ## what a change must pass before it is merged
	cargo fmt --check && cargo clippy --all-targets -- -D warnings && cargo test && cargo doc --no-deps
	cargo deny --version >/dev/null 2>&1 || cargo install --locked cargo-deny
	cargo deny check

e2e: setup ## only the tests on a real Kubernetes; ALL=1 for what takes too long for `make test`
	$(TESTBED) prepare && $(E2E)

soak: setup ## faults of every kind under load on one cluster; MINUTES=n for another time than 120
	$(TESTBED) prepare && MINUTES=$(or $(MINUTES),120) $(E2E) soak:: --nocapture

bless: ## rewrite the generated files and the expected texts
	UPDATE_EXPECT=1 cargo test

# On a stand-in of the Dockerfile's base, made from Debian packages: no registry is needed.
image: setup ## the operator's image, as small as it gets
	cargo build --profile dist --bin valkey-operator && $(TESTBED) operator-image target/dist/valkey-operator

release: setup ## all of a release, with checksums and a bill of materials, in dist/
	sh deploy/release.sh

bench: setup ## the performance goals; ROUNDS=n for another number of rounds than 5
	$(TESTBED) prepare && SLOW=1 cargo bench --profile dev --bench bootstrap

setup:
	@sh tests/testbed/setup.sh
