#!/bin/sh
# Builds the command and shows it: a real tree mounted through StackFS, used, compared with the
# native directory, and unmounted.
set -eu

cd "$(dirname "$0")/.."

echo "building (the first time takes a few minutes)"
cargo build --locked --release --quiet --package bickford-cli --bin bickford
cargo build --locked --release --quiet --package bickford-conformance --bin demo
BICKFORD_BIN=$PWD/target/release/bickford exec target/release/demo
