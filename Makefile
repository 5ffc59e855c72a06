# One command for each thing a developer or a newcomer does. `make` lists them.

# Programs that only root runs may be where other users' PATH, which sudo may keep, does not look.
export PATH := $(CURDIR)/.prerequisites/bin:$(PATH):/usr/sbin:/sbin

CARGO ?= cargo
# Some recipes and tests run in other directories.
ifneq ($(CARGO_TARGET_DIR),)
override CARGO_TARGET_DIR := $(if $(filter /%,$(firstword $(CARGO_TARGET_DIR))),,$(CURDIR)/)$(CARGO_TARGET_DIR)
export CARGO_TARGET_DIR
endif
TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
RELEASE_COMMAND := $(TARGET)/release/bickford
# Tests mount over io_uring, too, where the kernel has it, and on a fresh ext4.
FOR_TESTS := scripts/with-io-uring.sh scripts/with-ext4.sh
# The fuzzing, a build of its own, uses the crates of this one, and breaks when these change. What is the same is built once.
TOGETHER := CARGO_TARGET_DIR="$(TARGET)"

.DEFAULT_GOAL := help
# What the tests need is installed first, and tests that mount do not run beside others (`make -j`).
.NOTPARALLEL:
.PHONY: help build install uninstall test demo check unit conformance-default conformance bench compare java doc book clean

help:
	@echo 'make build         the bickford command, optimized: target/release/bickford'
	@echo 'make install       what was built, to PREFIX=/usr/local; `make uninstall` takes it away (scripts/install.sh)'
	@echo 'make demo          mount a real tree, use it, compare it with the native directory (root)'
	@echo 'make test          everything a change must pass (root)'
	@echo 'make check         the part of `make test` that mounts nothing: style, lints, documentation, licences'
	@echo 'make conformance   every preset, transport, I/O mode and lower mode, at full length: hours (root)'
	@echo 'make bench         the micro-benchmarks of the library (root)'
	@echo 'make java          the part of `make test` for the Java binding (JDK 22 or later, Maven)'
	@echo 'make compare       Bickford beside other FUSE libraries and the native file system (root)'
	@echo 'make doc           the documentation of the libraries: target/doc/bickford/index.html'
	@echo 'make book          the guide: target/book/index.html'
	@echo 'make clean         remove what was built'

build:
	$(CARGO) build --locked --release --package bickford-cli

# It builds nothing: root, who installs, has no toolchain.
install:
	@FROM="$(TARGET)/release" scripts/install.sh

uninstall:
	@scripts/install.sh uninstall

test: prerequisites-test check unit java conformance-default

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	# What is not linked needs no libFuzzer, whose build takes longer than all of this.
	cd fuzz && $(TOGETHER) CUSTOM_LIBFUZZER_PATH=/none/libfuzzer.a $(CARGO) clippy --locked --all-targets -- -D warnings
	$(CARGO) xtask tidy
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps
	scripts/targets.sh
	scripts/deny.sh
	scripts/book.sh

unit:
	$(FOR_TESTS) $(CARGO) test --locked --workspace --exclude bickford-conformance

# One test binary after the other and one test at a time: they share the machine's mounts, and a
# test that measures descriptors or fills a disk must not do it to another.
conformance-default: build
	BICKFORD_BIN="$(RELEASE_COMMAND)" \
	    $(FOR_TESTS) $(CARGO) test --locked --package bickford-conformance -- --test-threads=1 --nocapture

conformance: prerequisites-test build
	BICKFORD_BIN="$(RELEASE_COMMAND)" BICKFORD_COMBINATIONS=all BICKFORD_LENGTH=full \
	    $(FOR_TESTS) $(CARGO) test --locked --package bickford-conformance -- --test-threads=1 --nocapture

demo:
	@scripts/prerequisites.sh demo
	@scripts/demo.sh

bench:
	$(CARGO) bench --locked --package bickford

# COMPARE='--rows lookup --rounds 3' and the like; `bench/compare/README.md` says what there is.
compare: build
	@scripts/prerequisites.sh compare
	$(CARGO) build --locked --release --package compare --bin compare --package bickford-examples --bin mirror
	BICKFORD_BIN="$(RELEASE_COMMAND)" "$(TARGET)/release/compare" $(COMPARE)

java:
	$(FOR_TESTS) scripts/java-tests.sh

doc:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --locked --workspace --no-deps

book:
	scripts/book.sh

clean:
	$(CARGO) clean

.PHONY: prerequisites-test
prerequisites-test:
	@scripts/prerequisites.sh test
