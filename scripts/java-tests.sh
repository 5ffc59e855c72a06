#!/bin/sh
# Runs the tests of bindings/java. Without a JDK 22 or later, or Maven, it says what to install and
# succeeds: the rest of the project does not need them. Arguments are passed to Maven.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)

skip() {
	cat >&2 <<TEXT
********************************************************************************
*  THE JAVA TESTS WERE NOT RUN: $1
*  Install a JDK 22 or later (for example Temurin 25, https://adoptium.net) and
*  Maven 3.8 or later (Debian, Ubuntu: apt-get install maven), and set JAVA_HOME
*  if the JDK is not below /usr/lib/jvm. Then run scripts/java-tests.sh again.
********************************************************************************
TEXT
	exit 0
}

release_of() {
	"$1/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'
}

jdk=
for home in "${JAVA_HOME:-}" /usr/lib/jvm/*; do
	if [ -n "$home" ] && [ -x "$home/bin/javac" ]; then
		release=$(release_of "$home")
		if [ "${release:-0}" -ge 22 ]; then
			jdk=$home
			break
		fi
	fi
done
[ -n "$jdk" ] || skip "no JDK 22 or later in JAVA_HOME and /usr/lib/jvm"
command -v mvn >/dev/null || skip "no Maven (mvn) in PATH"

cd "$root"
target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
native=$target/debug/libbickford_ffi.so
case " $* " in
*" -Dbickford.native="*) native= ;;
*) cargo build --package bickford-ffi ;;
esac
cd bindings/java
echo "java tests: $("$jdk/bin/java" -version 2>&1 | head -n 1), $jdk"
if [ -n "$native" ]; then
	set -- -Dbickford.native="$native" "${@:-test}"
fi
JAVA_HOME=$jdk exec mvn --batch-mode --quiet "$@"
