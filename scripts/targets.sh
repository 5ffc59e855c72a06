#!/bin/sh
# Type-checks the workspace for what users build for elsewhere: another C library (musl: Alpine, static programs) and
# another architecture, both at once, since nothing here is for one of them with the other alone. Where the target's
# standard library is missing this is left out, and said so.
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
