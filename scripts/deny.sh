#!/bin/sh
# Licences, banned crates and sources of every dependency; known vulnerabilities where their database
# can be had. Without a network that one part is left out, and said so.
set -eu

cd "$(dirname "$0")/.."
export PATH="$PWD/.prerequisites/bin:$PATH"

cargo deny --all-features check licenses bans sources

if message=$(cargo deny fetch db 2>&1); then
    cargo deny --offline --all-features check advisories
else
    printf '%s\n' "$message" >&2
    echo "deny: NOT CHECKED: advisories; their database cannot be fetched (see above)" >&2
fi
