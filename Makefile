# The verbs of this project. A fresh machine needs Rust, Go, make and root; `setup` installs the few Debian packages besides.
.PHONY: demo shell down test check e2e bless image bench setup
TESTBED = cargo run --quiet --example testbed --

demo: setup ## a real Kubernetes on this machine, the operator in it, a cluster with keys
	@echo "demo: the first time this compiles the operator and a Kubernetes, about 15 minutes on two cores; later it takes less than one"
	cargo build --bins --examples && $(TESTBED) demo

shell: ## kubectl and valkey-cli in the demo
	$(TESTBED) shell

down: ## end the demo without a trace
	$(TESTBED) down

test: setup ## every test, the slow ones too
	$(TESTBED) prepare && SLOW=1 cargo test

check: setup ## what a change must pass before it is merged
	cargo fmt --check && cargo clippy --all-targets -- -D warnings && cargo test && cargo doc --no-deps && cargo deny check

e2e: setup ## only the tests on a real Kubernetes
	$(TESTBED) prepare && SLOW=1 cargo test --test e2e

bless: ## rewrite the generated files and the expected texts
	UPDATE_EXPECT=1 cargo test

image: setup ## the image that is shipped
	cargo build --profile dist --bin valkey-operator && $(TESTBED) operator-image target/dist/valkey-operator

bench: setup ## the performance goals; ROUNDS=n for another number of rounds than 5
	$(TESTBED) prepare && SLOW=1 cargo bench --profile dev --bench bootstrap

setup:
	@sh tests/testbed/setup.sh
