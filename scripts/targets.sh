#!/bin/sh
# Type-checks the workspace for the other targets that users build for: another C library (musl: Alpine, static
# programs) and another architecture. A target whose standard library is missing is left out, and said so.
set -eu

cd "$(dirname "$0")/.."

for target in x86_64-unknown-linux-musl aarch64-unknown-linux-gnu; do
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
        # A C library is not made for musl by itself (`cdylib`), which cargo warns of.
        cargo check --quiet --locked --workspace --target "$target"
        echo "targets: $target"
    else
        echo "targets: NOT CHECKED: $target; rustup target add $target" >&2
    fi
done
