#!/bin/sh
# Builds the native libraries that go into the jar of bindings/java: this machine's, and that of the
# other architecture where the toolchain for it is there, which is loaded once where qemu is there too.
# `mvn package` then puts both into the jar.
#
#   scripts/java-natives.sh [x86_64] [aarch64]     the ones named must be built; else those that can be
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root"
target=$(cargo metadata --locked --no-deps --format-version 1 |
	sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
native=$(rustc -vV | sed -n 's/^host: \([^-]*\)-.*/\1/p')

# What is missing to build for an architecture; nothing where it can be built.
missing_for() {
	sysroot=$(rustc --print sysroot)
	[ -d "$sysroot/lib/rustlib/$1-unknown-linux-gnu" ] ||
		echo "its standard library: rustup target add $1-unknown-linux-gnu"
	[ "$1" = "$native" ] || command -v "$1-linux-gnu-gcc" >/dev/null ||
		echo "its linker: apt-get install --no-install-recommends gcc-$(echo "$1" | tr _ -)-linux-gnu libc6-dev-$2-cross"
}

# Loads the library of another architecture and asks its version, where qemu can run a program of it.
try_out() {
	qemu=$(command -v "qemu-$1-static" || command -v "qemu-$1" || true)
	if [ -z "$qemu" ]; then
		echo "java-natives: not loaded, for there is no qemu-$1 (apt-get install qemu-user-static)" >&2
		return
	fi
	trial=$(mktemp -d)
	# What a program asks for is the name with the version of the interface.
	ln -s "$(realpath "$2")/libbickford_ffi.so" "$trial/libbickford_ffi.so.1"
	printf '#include <bickford.h>\nint main(void) { return bickford_abi_version() != BICKFORD_ABI_VERSION; }\n' |
		"$1-linux-gnu-gcc" -I crates/bickford-ffi/include -x c - -o "$trial/program" -L "$2" -lbickford_ffi
	status=0
	LD_LIBRARY_PATH= "$qemu" -L "/usr/$1-linux-gnu" -E "LD_LIBRARY_PATH=$trial" "$trial/program" || status=$?
	rm -rf "$trial"
	if [ "$status" -ne 0 ]; then
		echo "java-natives: $2/libbickford_ffi.so: $qemu cannot load it, or it is of another version (status $status)" >&2
		exit 1
	fi
}

# build ARCHITECTURE DEBIAN-NAME REQUIRED
build() {
	missing=$(missing_for "$1" "$2")
	if [ -n "$missing" ]; then
		printf 'java-natives: linux-%s is left out; missing is\n' "$1" >&2
		printf '%s\n' "$missing" | sed 's/^/  /' >&2
		[ -z "$3" ] || exit 1
		return
	fi
	if [ "$1" = "$native" ]; then
		# Where Maven takes it by default.
		cargo build --locked --release --package bickford-ffi
		echo "java-natives: $target/release/libbickford_ffi.so"
		return
	fi
	variable=CARGO_TARGET_$(echo "$1" | tr '[:lower:]' '[:upper:]')_UNKNOWN_LINUX_GNU_LINKER
	export "$variable=$1-linux-gnu-gcc"
	export "CC_$1_unknown_linux_gnu=$1-linux-gnu-gcc"
	cargo build --locked --release --package bickford-ffi --target "$1-unknown-linux-gnu"
	into=bindings/java/target/natives/META-INF/native/linux-$1
	mkdir -p "$into"
	cp "$target/$1-unknown-linux-gnu/release/libbickford_ffi.so" "$into/"
	try_out "$1" "$into"
	echo "java-natives: $into/libbickford_ffi.so"
}

case " ${*:-all} " in *" all "* | *" x86_64 "*) build x86_64 amd64 "${*:-}" ;; esac
case " ${*:-all} " in *" all "* | *" aarch64 "*) build aarch64 arm64 "${*:-}" ;; esac
