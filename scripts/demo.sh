#!/bin/sh
# Builds the command and shows it: a real tree mounted through StackFS, used, compared with the
# native directory, and unmounted; then, as root, a quick evaluation of this machine.
set -eu

cd "$(dirname "$0")/.."

echo "building (the first time takes a few minutes)"
cargo build --locked --release --quiet --package bickford-cli --bin bickford
cargo build --locked --release --quiet --package bickford-conformance --bin demo
built=${CARGO_TARGET_DIR:-target}
BICKFORD_BIN=$(cd "$built/release" && pwd)/bickford "$built/release/demo"

printf '\n%s\n' "6. To FUSE or not to FUSE, on this machine"
report=$built/demo-evaluation
evaluation="$built/release/bickford eval --suite quick --out $report"
if [ "$(id -u)" != 0 ]; then
    echo "   left out: it makes file systems of its own. As root: $evaluation"
    exit 0
fi
rm -rf "$report"
echo "   \$ $evaluation"
# A row that this machine cannot run is in the report with its reason; the demonstration goes on.
"$built/release/bickford" eval --suite quick --out "$report" ||
    echo "   not all of it could be measured here; why stands above"
