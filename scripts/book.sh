#!/bin/sh
# Builds the guide into target/book. What mdbook complains about (a file that cannot be included, a
# broken summary) fails here; links and snippets are checked by `cargo test -p bickford-examples`.
set -eu

top=$(cd "$(dirname "$0")/.." && pwd)
PATH="$top/.prerequisites/bin:$PATH"
if ! command -v mdbook >/dev/null 2>&1; then
    echo "book: mdbook not found; scripts/prerequisites.sh test installs it, as does: cargo install mdbook" >&2
    exit 1
fi
said=$(mdbook build --dest-dir "$top/target/book" "$top/docs/guide" 2>&1) || {
    printf '%s\n' "$said" >&2
    exit 1
}
if printf '%s\n' "$said" | grep -E 'ERROR|WARN' >&2; then
    echo "book: mdbook has complained, see above" >&2
    exit 1
fi
echo "book: target/book/index.html"
