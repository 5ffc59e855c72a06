#!/bin/sh
# Mixed load on Java file systems for a long time, with a busy collector; fails when an operation
# does, when native memory, descriptors or threads grow, or when nothing moves. Needs root.
#
#   scripts/java-soak.sh [SECONDS [TRANSPORT]]     1200 seconds, transport auto; or dev, uring
set -eu

seconds=${1:-1200}
transport=${2:-auto}
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

[ "$(id -u)" = 0 ] || { echo "java-soak: mounts file systems: run it as root" >&2; exit 1; }
cd "$root"
cargo build --locked --release --package bickford-ffi
target=$(cargo metadata --locked --no-deps --format-version 1 |
	sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
scripts/java-tests.sh test-compile -Dbickford.native="$target/release/libbickford_ffi.so"
jdk=$(scripts/java-tests.sh --find-jdk)
[ -n "$jdk" ] || exit 1

directory=$(mktemp -d /var/tmp/bickford-soak.XXXXXX)
clean() {
	for mount in "$directory"/*; do
		if mountpoint -q "$mount"; then umount -l "$mount"; fi
	done
	rm -rf --one-file-system "$directory"
}
trap clean EXIT
trap 'exit 1' INT TERM
# The heap is taken at once, so that resident memory grows by native memory alone. With few arenas
# the C library's allocator keeps little of what was given back to it.
MALLOC_ARENA_MAX=2 "$jdk/bin/java" --enable-native-access=ALL-UNNAMED -XX:NativeMemoryTracking=summary \
	-Xms512m -Xmx512m -XX:+AlwaysPreTouch -cp bindings/java/target/classes:bindings/java/target/test-classes \
	io.github.bickfordfs.soak.Soak "$seconds" "$transport" "$directory"
