#!/bin/sh
# Builds the Java binding and measures JavaFuse beside StackFS with the same preset: bickford eval with
# opt, JavaFuse1 (metadata only), JavaFuse2 (data copied) and JavaFuse-shared. Arguments are passed on:
#   sudo scripts/eval-java.sh --suite sac10 --device ram
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
# Names of files among the arguments are those of where this was called.
target=$(cd "$root" && cargo metadata --locked --no-deps --format-version 1 |
	sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
(
	cd "$root"
	cargo build --locked --release --package bickford-cli --package bickford-ffi
	scripts/java-tests.sh package -DskipTests -Dbickford.native="$target/release/libbickford_ffi.so"
)

BICKFORD_JAVA=$root/bindings/java exec "$target/release/bickford" eval \
	--config opt,JavaFuse1,JavaFuse2,JavaFuse-shared "$@"
