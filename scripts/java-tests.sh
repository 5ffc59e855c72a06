#!/bin/sh
# Runs the tests of bindings/java. Without a JDK 22 or later, or Maven, it says what to install and
# succeeds: the rest of the project does not need them. Arguments are passed to Maven.
#
# Maven downloads from Maven Central what it has not got yet. When that fails, which says nothing about
# the change that is tested, it is tried again, and then this fails with another status than a test.
# Without arguments bindings/java/bench is compiled, too, so that what measures goes along with what it measures.
#
# Exit status: 0 passed, or left out as said above; 1 a test or the build failed; 3 not downloaded.
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
downloads=4
oldest=22

notice() {
	bar=$(printf '%080d' 0 | tr 0 '*')
	printf '%s\n' "$bar" >&2
	sed 's/^/*  /' >&2
	printf '%s\n' "$bar" >&2
}

skip() {
	notice <<-TEXT
		THE JAVA TESTS WERE NOT RUN: $1
		Install a JDK $oldest or later (for example Temurin 25, https://adoptium.net) and
		Maven 3.8 or later (Debian, Ubuntu: apt-get install maven), and set JAVA_HOME
		if the JDK is neither on PATH nor below /usr/lib/jvm. Then run
		scripts/java-tests.sh again.
	TEXT
	exit 0
}

release_of() {
	"$1/bin/javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p'
}

# The home of the first JDK that is new enough; nothing where there is none.
find_jdk() {
	on_path=$(command -v javac || command -v java || true)
	if [ -n "$on_path" ]; then
		on_path=$(dirname -- "$(dirname -- "$(readlink -f -- "$on_path")")")
	fi
	for home in "${JAVA_HOME:-}" "$on_path" /usr/lib/jvm/*; do
		if [ -n "$home" ] && [ -x "$home/bin/javac" ]; then
			release=$(release_of "$home")
			if [ "${release:-0}" -ge "$oldest" ]; then
				printf '%s\n' "$home"
				return
			fi
		fi
	done
}

# Whether the log of a failed Maven tells that something could not be had from a repository.
not_downloaded() {
	grep -E -q 'Could not (transfer|find) artifact|in offline mode|Could not resolve dependencies|or one of its dependencies could not be resolved|Failed to read artifact descriptor|Non-resolvable' "$log"
}

maven() {
	JAVA_HOME=$jdk mvn --batch-mode --no-transfer-progress "$@" >"$log" 2>&1
}

jdk=$(find_jdk)
# For other scripts: where the JDK is.
if [ "${1:-}" = --find-jdk ]; then
	printf '%s\n' "$jdk"
	exit 0
fi
[ -n "$jdk" ] || skip "no JDK $oldest or later in JAVA_HOME, on PATH and in /usr/lib/jvm"
command -v mvn >/dev/null || skip "no Maven (mvn) on PATH"

cd "$root"
bench=
[ $# -gt 0 ] || bench=yes
case " $* " in
*" -Dbickford.native="*) ;;
*)
	# With the features that the tests of the workspace are built with, which only building them gives: what
	# they built is used again.
	cargo build --locked --workspace --exclude bickford-conformance --lib --bin bickford --tests
	target=$(cargo metadata --locked --no-deps --format-version 1 |
		sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
	set -- -Dbickford.native="$target/debug/libbickford_ffi.so" -Dbickford.command="$target/debug/bickford" "${@:-test}"
	;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 1' INT TERM
if [ "${BICKFORD_LENGTH:-}" = full ]; then
	set -- -Dbickford.deadline=14400 "$@"
fi
# What scripts/prerequisites.sh has built.
export PATH="$root/.prerequisites/bin:$PATH"
cd bindings/java
echo "java tests: $("$jdk/bin/java" -version 2>&1 | head -n 1), $jdk"
# attempted NAME MAVEN-ARGUMENT ...: downloads what is missing, as often as it takes. Exit status as above.
attempted() {
	what=$1
	shift
	status=0
	# What is there already needs no network.
	maven --offline "$@" || status=$?
	attempt=1
	while [ "$status" -ne 0 ] && not_downloaded; do
		if [ "$attempt" -gt "$downloads" ]; then
			grep '^\[ERROR\]' "$log" >&2 || cat "$log" >&2
			return 3
		fi
		echo "java tests: downloading for $what from Maven's repositories, attempt $attempt of $downloads"
		[ "$attempt" -eq 1 ] || sleep $((attempt * 5))
		attempt=$((attempt + 1))
		status=0
		maven --update-snapshots "$@" || status=$?
	done
	[ "$status" -ne 0 ] || return 0
	cat "$log" >&2
	echo "java tests: $what FAILED" >&2
	return 1
}

status=0
attempted 'the tests' "$@" || status=$?
case $status in
0) ;;
3)
	notice <<-TEXT
		THE JAVA TESTS WERE NOT RUN: Maven could not download what they need, in
		$downloads attempts. The tests themselves have not failed. See the lines above;
		check that https://repo.maven.apache.org can be reached, or name a mirror
		in ~/.m2/settings.xml. Then run scripts/java-tests.sh again.
	TEXT
	exit 3
	;;
*) exit 1 ;;
esac
summary=$(grep -E '^(\[[A-Z]*\] )?Tests run:.*[0-9]$' "$log" | tail -n 1 | sed 's/.*Tests run/run/')
if [ -n "$summary" ]; then
	echo "java tests: $summary"
elif [ "$bench" ]; then
	cat "$log" >&2
	echo "java tests: FAILED: Maven succeeded, but its log above has no line of how many tests it ran" >&2
	exit 1
fi
case $summary in
'' | *'Skipped: 0') ;;
*)
	notice <<-TEXT
		SOME JAVA TESTS WERE LEFT OUT, for:
		$(grep -h -o 'TestAbortedException: .*' target/surefire-reports/*.xml | sort | uniq -c)
	TEXT
	;;
esac
[ "$bench" ] || exit 0
"$jdk/bin/jar" --create --file target/for-bench.jar -C target/classes .
status=0
attempted 'what measures' --file bench/pom.xml -Dbickford.classes="$PWD/target/for-bench.jar" compile || status=$?
case $status in
0) echo "java tests: bindings/java/bench compiles" ;;
3)
	notice <<-TEXT
		BINDINGS/JAVA/BENCH WAS NOT COMPILED: Maven could not download the libraries that it
		measures. See the lines above. The tests have passed without it.
	TEXT
	;;
*) exit 1 ;;
esac
