#!/bin/sh
# Measures JavaFuse beside StackFS with the same preset: bickford eval with the configurations
# stackfs, javafuse1 (metadata only), javafuse2 (data copied) and shared. Arguments are passed on:
#   sudo scripts/eval-java.sh --suite sac10 --device ram
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
cargo build --release --package bickford-cli --package bickford-ffi
scripts/java-tests.sh package -DskipTests -Dbickford.native="$root/target/release/libbickford_ffi.so"

bickford=$root/target/release/bickford
javafuse="exec '$root/bindings/java/bin/javafuse' --class io.github.bickfordfs.examples.NullFs \
--classpath '$root/bindings/java/target/test-classes' -o preset=opt"

exec "$bickford" eval \
	--config "stackfs=exec '$bickford' mount -f --preset opt {src} {mnt}" \
	--config "javafuse1=$javafuse --data none {src} {mnt}" \
	--config "javafuse2=$javafuse --data copied {src} {mnt}" \
	--config "shared=$javafuse --data shared {src} {mnt}" \
	"$@"
