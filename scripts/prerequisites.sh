#!/bin/sh
# Sees to what the build, the demonstration and the tests need beyond make, git and a Rust toolchain.
# As root it installs what is missing; otherwise it names what to install and fails.
#
#   scripts/prerequisites.sh demo    for `make demo`
#   scripts/prerequisites.sh test    for `make test` and `make conformance`
#   scripts/prerequisites.sh compare for `make compare`
set -eu

purpose=${1:-test}
top=$(cd "$(dirname "$0")/.." && pwd)
tools=$top/.prerequisites
export PATH="$tools/bin:$PATH"

# Versions the tests are known to work with. pjdfstest and fsx print their results for a reader, and
# the tests parse them: another version is not taken.
pjdfstest_version=0.2.2
fsx_version=0.3.2
cargo_deny_version=0.20.2
mdbook_version=0.5.4

say() { printf 'prerequisites: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

case $purpose in
demo | test | compare) ;;
*) fail "unknown purpose '$purpose'; use demo, test or compare" ;;
esac

have cargo || fail "cargo not found; install a Rust toolchain (https://rustup.rs) and put ~/.cargo/bin on PATH"

# An older cargo does not tell: it stumbles over the manifest.
promised=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$top/Cargo.toml")
version=$(cd "$top" && cargo --version) || fail "cargo does not run; see the lines above"
version=$(printf '%s\n' "$version" | cut -d ' ' -f 2)
[ "$(printf '%s\n' "$promised" "$version" | sort -V | head -n 1)" = "$promised" ] ||
    fail "cargo $version is too old; install Rust $promised or later (https://rustup.rs) and put ~/.cargo/bin first on PATH"

# Before anything is built for minutes.
if [ "$purpose" = test ] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1; then
    fail "rustfmt or clippy is missing: rustup component add rustfmt clippy"
fi

missing=
# need PACKAGE PROGRAM: the Debian package that brings a program.
need() {
    PATH="$PATH:/usr/sbin:/sbin" have "$2" || missing="$missing $1"
}

need gcc gcc
# Debian's gcc only recommends it, and without it nothing can be linked.
{ have gcc && [ "$(gcc -print-file-name=crt1.o)" != crt1.o ]; } || missing="$missing libc6-dev"
need fuse3 fusermount3
need mount mount
need util-linux setpriv
if [ "$purpose" = test ]; then
    need git git
    need tar tar
    need attr setfattr
    need acl setfacl
    need e2fsprogs mkfs.ext4
    need sqlite3 sqlite3
    need python3 python3
    need perl perl
    need postmark postmark
    need dosfstools mkfs.vfat
    need btrfs-progs mkfs.btrfs
    need valgrind valgrind
    need pkg-config pkg-config
    # The kernel's header, against which the ABI's layouts are held.
    [ -e /usr/include/linux/fuse.h ] || missing="$missing linux-libc-dev"
fi

# `make demo` ends with an evaluation, which only root can run.
if [ "$purpose" = demo ] && [ "$(id -u)" = 0 ]; then
    need e2fsprogs mkfs.ext4
    need fio fio
    need postmark postmark
fi

if [ "$purpose" = compare ]; then
    need make make
    need e2fsprogs mkfs.ext4
    need pkg-config pkg-config
    need golang go
    ! have pkg-config || pkg-config --exists fuse3 || missing="$missing libfuse3-dev"
    have pkg-config || missing="$missing libfuse3-dev"
fi

if [ -n "$missing" ]; then
    have apt-get || fail "missing:$missing (names of Debian packages); install what your distribution calls them"
    [ "$(id -u)" = 0 ] || fail "missing:$missing; run as root: apt-get install --no-install-recommends$missing"
    say "installing$missing"
    apt-get update -q
    # shellcheck disable=SC2086 # a list of words
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing
fi

if [ ! -e /dev/fuse ]; then
    have modprobe && modprobe fuse 2>/dev/null || true
    [ -e /dev/fuse ] || fail "/dev/fuse is missing: load the kernel's fuse module (modprobe fuse); in a container, pass the device in"
fi

[ "$purpose" = test ] || exit 0

[ "$(id -u)" = 0 ] || fail "the tests mount file systems and change users: run them as root: sudo -E env \"PATH=\$PATH\" make test"

# Small programs that run for seconds: time spent optimizing them is lost.
install_tool() { # NAME VERSION OPT-LEVEL [OPTION...]
    tool=$1 version=$2 level=$3
    shift 3
    set -- "$@" --version "=$version" "$tool"
    say "building $tool $version into .prerequisites (once)"
    CARGO_PROFILE_RELEASE_OPT_LEVEL=$level CARGO_PROFILE_RELEASE_LTO=off \
    CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 CARGO_PROFILE_RELEASE_DEBUG=0 \
        cargo install --quiet --locked --root "$tools" --target-dir "$tools/target" \
        "$@" || fail "cannot build $tool $version; is the crate registry reachable?"
    rm -rf "$tools/target"
}

pinned() { # NAME VERSION
    if have "$1" && [ "$("$1" --version 2>/dev/null)" = "$1 $2" ]; then
        return
    fi
    install_tool "$1" "$2" 1
}

pinned pjdfstest "$pjdfstest_version"
pinned fsx "$fsx_version"
if ! cargo deny --version >/dev/null 2>&1; then
    install_tool cargo-deny "$cargo_deny_version" 0
fi
# The guide. Neither its server nor its search is needed to see whether it can be built.
if ! have mdbook; then
    install_tool mdbook "$mdbook_version" 0 --no-default-features
fi

# For scripts/targets.sh, which leaves out what cannot be had.
if have rustup; then
    rustup --quiet target add aarch64-unknown-linux-musl ||
        say "the other target cannot be checked; rustup target add has failed" >&2
fi
