#!/bin/sh
# Type-checks the workspace for what users build for elsewhere: another C library (musl: Alpine, static programs) and
# another architecture, both at once, since nothing here is for one of them with the other alone. Where the target's
# standard library is missing this is left out, and said so. So it is with the library and the Rust version that the
# workspace promises (rust-version), where rustup does not have that one. Last what another crate of a program may ask
# for: rustix over libc, as it is by itself on architectures for which it has no system calls of its own.
set -eu

cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-musl
if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    # A C library is not made for musl by itself (`cdylib`), which cargo warns of.
    cargo check --quiet --locked --workspace --target "$target"
    echo "targets: $target"
else
    echo "targets: NOT CHECKED: $target; rustup target add $target" >&2
fi

version=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
toolchain=$(rustup toolchain list 2>/dev/null | sed -n "s/^\($version[-.][^ ]*\).*/\1/p" | head -n 1)
if [ -n "$toolchain" ]; then
    # Another compiler's results in the same directory would have both build everything again each time.
    rustup run "$toolchain" cargo check --quiet --locked -p bickford --target-dir "${CARGO_TARGET_DIR:-target}/rust-$version"
    echo "targets: Rust $version"
else
    echo "targets: NOT CHECKED: Rust $version; rustup toolchain install $version --profile minimal --no-self-update" >&2
fi

cargo check --quiet --locked -p bickford-cli -p bickford-ffi --features rustix/use-libc
echo "targets: rustix over libc"
