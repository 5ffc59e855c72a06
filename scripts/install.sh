#!/bin/sh
# Installs what was built, or takes it away again:
#
#   scripts/install.sh [uninstall]
#
# Set in the environment:
#   PREFIX     where programs will find it: /usr/local
#   LIBDIR     where libraries go: $PREFIX/lib
#   MOUNTDIR   where mount(8) looks for mount.fuse.bickford: /sbin
#   DESTDIR    what stands for / while a package is made
#   FROM       what was built: target/release
#   JARS       what Maven built: bindings/java/target
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
: "${PREFIX:=/usr/local}" "${DESTDIR:=}" "${MOUNTDIR:=/sbin}" "${FROM:=$root/target/release}"
: "${LIBDIR:=$PREFIX/lib}" "${JARS:=$root/bindings/java/target}"
man=$PREFIX/share/man/man1

say() { printf 'install: %s\n' "$*"; }
fail() { say "$*" >&2; exit 1; }

removing=
case ${1:-} in
'') ;;
uninstall) removing=yes ;;
*) fail "unknown argument '$1'; use uninstall or none" ;;
esac
for path in "$PREFIX" "$LIBDIR" "$MOUNTDIR" "${DESTDIR:-/}"; do
	case $path in
	/*) ;;
	*) fail "'$path' is not absolute; PREFIX, LIBDIR, MOUNTDIR and DESTDIR begin with /" ;;
	esac
done

# put MODE FILE PLACE
put() {
	if [ "$removing" ]; then
		rm -f "$DESTDIR$3"
		return
	fi
	install -D -m "$1" "$2" "$DESTDIR$3"
	say "$3"
}

# link TARGET PLACE
link() {
	if [ "$removing" ]; then
		rm -f "$DESTDIR$2"
		return
	fi
	mkdir -p "$(dirname "$DESTDIR$2")"
	ln -sf "$1" "$DESTDIR$2"
	say "$2 -> $1"
}

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT

command_and_its_pages() {
	put 755 "$FROM/bickford" "$PREFIX/bin/bickford"
	if [ -z "$DESTDIR" ] && [ "$(id -u)" != 0 ]; then
		say "$MOUNTDIR/mount.fuse.bickford is left to root; without it mount(8) and fstab go through mount.fuse3(8)"
	else
		link "$PREFIX/bin/bickford" "$MOUNTDIR/mount.fuse.bickford"
	fi
	if [ "$removing" ]; then
		rm -f "$DESTDIR$man"/bickford.1 "$DESTDIR$man"/bickford-*.1
	else
		mkdir "$temporary/man"
		"$FROM/bickford" man "$temporary/man" >"$temporary/told"
		for page in "$temporary"/man/*.1; do
			put 644 "$page" "$man/$(basename "$page")"
		done
		for shell in bash fish zsh; do
			"$FROM/bickford" completions "$shell" >"$temporary/$shell"
		done
	fi
	put 644 "$temporary/bash" "$PREFIX/share/bash-completion/completions/bickford"
	put 644 "$temporary/fish" "$PREFIX/share/fish/vendor_completions.d/bickford.fish"
	put 644 "$temporary/zsh" "$PREFIX/share/zsh/site-functions/_bickford"
}

library() {
	ffi=$root/crates/bickford-ffi
	version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$root/Cargo.toml")
	abi=$(sed -n 's/^pub const BICKFORD_ABI_VERSION: u32 = \(.*\);/\1/p' "$ffi/src/abi.rs")
	cat >"$temporary/bickford.pc" <<-END
		prefix=$PREFIX
		includedir=\${prefix}/include
		libdir=$LIBDIR

		Name: bickford
		Description: FUSE file systems for Linux
		URL: https://github.com/bickford-fs/bickford
		Version: $version
		Cflags: -I\${includedir}
		Libs: -L\${libdir} -lbickford_ffi
		Libs.private: -lgcc_s -lutil -lrt -lpthread -lm -ldl -lc
	END
	put 644 "$ffi/include/bickford.h" "$PREFIX/include/bickford.h"
	put 644 "$FROM/libbickford_ffi.so" "$LIBDIR/libbickford_ffi.so.$abi"
	link "libbickford_ffi.so.$abi" "$LIBDIR/libbickford_ffi.so"
	if [ "$removing" ] || [ -e "$FROM/libbickford_ffi.a" ]; then
		put 644 "$FROM/libbickford_ffi.a" "$LIBDIR/libbickford_ffi.a"
	fi
	put 644 "$temporary/bickford.pc" "$LIBDIR/pkgconfig/bickford.pc"
	if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ]; then
		PATH="$PATH:/usr/sbin:/sbin" ldconfig || say "ldconfig failed; programs may not find the library until it has run"
	fi
}

java() {
	put 755 "$root/bindings/java/bin/javafuse" "$PREFIX/bin/javafuse"
	if [ "$removing" ]; then
		rm -f "$DESTDIR$PREFIX"/lib/bickford-*.jar
	else
		put 644 "$jar" "$PREFIX/lib/$(basename "$jar")"
	fi
}

if [ "$removing" ]; then
	command_and_its_pages
	library
	java
	say "taken away from $DESTDIR$PREFIX"
	exit
fi

some=
if [ -e "$FROM/bickford" ]; then
	command_and_its_pages
	some=yes
else
	say "the command is left out, for there is no $FROM/bickford: make build"
fi
if [ -e "$FROM/libbickford_ffi.so" ]; then
	library
	some=yes
else
	say "the C library is left out, for there is no $FROM/libbickford_ffi.so: cargo build --release -p bickford-ffi"
fi
jar=$(find "$JARS" -maxdepth 1 -name 'bickford-*.jar' ! -name '*-sources.jar' ! -name '*-javadoc.jar' 2>/dev/null |
	head -n 1)
if [ "$jar" ]; then
	java
	some=yes
else
	say "javafuse is left out, for there is no jar in $JARS: mvn -f bindings/java package"
fi
[ "$some" ] || fail "nothing was built"
