#!/bin/sh
# Measures JavaFuse against StackFS and against other FUSE libraries for Java, each with a null file
# system, in one run: the metadata round trip, each operation with several numbers of clients, PostMark,
# a large copy and Bonnie's phases, and the crossing alone with JMH. Configurations take turns and the
# first round does not count. Needs root, and a machine that does nothing else.
#
#   sudo scripts/bench-java.sh [--out DIR] [--medium | --quick] [--rows ROW,...] [--awake] [PART ...]
#
#   PART       round-trip, micro, eval, crossing; else all four. micro is bench/compare, whose README tells
#              the rows; ours go over the transport that this machine gives (machine.txt says which)
#   --medium   PostMark and the copy at the papers' size and with as many rounds as else, Bonnie's phases
#              at two sizes, no buffer sizes, fewer names and forks, 18 of 25 operations by 1 and 8 clients
#   --rows     only these operations in micro
#   --quick    only shows that everything runs: its figures mean nothing
#   --awake    no CPU goes to sleep meanwhile (/dev/cpu_dma_latency): waking one takes longer than what is
#              measured here, and how long differs from one round to the next
set -eu

root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
machine=$(systemd-detect-virt 2>/dev/null | grep -v none || uname -n)
out=$root/benchsuite/runs/$(date +%F)-$machine-java
length=full
awake=
parts=
only=
while [ $# -gt 0 ]; do
	case $1 in
	--out) out=$(realpath -m -- "$2"); shift ;;
	--medium | --quick) length=${1#--} ;;
	--awake) awake=yes ;;
	--rows) only=$2; shift ;;
	round-trip | micro | eval | crossing) parts="$parts $1" ;;
	*) sed -n '2,16s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
	esac
	shift
done
parts=${parts:-round-trip micro eval crossing}
case $length in
full)
	round_trip_length= eval_length= crossing_length=
	micro_length='--rounds 5 --clients 1,2,8,32 --warm-up 2'
	;;
medium)
	round_trip_length='--rounds 11 --count 5000'
	rows=lookup,lookup-missing,stat,stat-missing,create,open,unlink,mkdir,rename,symlink,list-stat,list-stat-first
	rows=$rows,append-fsync,read-4k,read-128k,read-random,write-4k,write-128k
	micro_length="--rounds 3 --clients 1,8 --warm-up 1 --rows $rows"
	phases=$(printf ',s3%s-25' a b c d e f)$(printf ',s3%s-100' a b c d e f)
	eval_length="--rows s4,s5$phases --rounds 3"
	crossing_length='-f 1 -wi 3 -i 5'
	;;
quick)
	round_trip_length='--rounds 2 --count 1000'
	micro_length='--quick --rounds 1 --clients 1'
	phases=$(printf ',s3%s-25' a b c d e f)
	eval_length="--rows s4,s5$phases --rounds 1 --scale 0.2"
	crossing_length='-f 1 -wi 1 -i 1'
	;;
esac
if [ "$only" ]; then micro_length="${micro_length%% --rows *} --rows $only"; fi

fail() { echo "bench-java: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "mounts file systems: run it as root"
missing=
for pair in postmark:postmark fusermount:fuse taskset:util-linux; do
	PATH="$PATH:/usr/sbin:/sbin" command -v "${pair%%:*}" >/dev/null || missing="$missing ${pair##*:}"
done
ldconfig -p | grep -q 'libfuse3\.so\.3 ' || missing="$missing libfuse3-3"
ldconfig -p | grep -q 'libfuse\.so\.2 ' || missing="$missing libfuse2"
# fuse3's fusermount3 stands in for the older fusermount.
missing=$(echo "$missing" | sed 's/ fuse\b/ fuse3/')
[ -z "$missing" ] || fail "missing:$missing (names of Debian packages): apt-get install --no-install-recommends$missing"

cd "$root"
cargo build --locked --release --package bickford-cli --package bickford-ffi --package compare
target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
jdk=$(scripts/java-tests.sh --find-jdk)
[ -n "$jdk" ] || fail "no JDK 22 or later; see scripts/java-tests.sh"
scripts/java-tests.sh package -DskipTests -Dbickford.native="$target/release/libbickford_ffi.so"
JAVA_HOME=$jdk mvn --batch-mode --quiet --file bindings/java/bench/pom.xml package

java=$root/bindings/java
classes=$java/bench/target/classes:$java/bench/target/lib/*:$java/target/bickford-0.1.0.jar
run_java="'$jdk/bin/java' --enable-native-access=ALL-UNNAMED -cp '$classes'"
library=$(ldconfig -p | sed -n 's/.*libfuse3\.so\.3 .*=> //p' | head -n 1)
jfuse_null="exec $run_java -Djfuse.library='$library' io.github.bickfordfs.bench.JfuseNull"
jnr_null="exec $run_java io.github.bickfordfs.bench.JnrNull"
jfuse="$jfuse_null {src} {mnt}"
jnr="$jnr_null {src} {mnt}"
export JAVA_HOME="$jdk"

if [ "$awake" ]; then
	[ -w /dev/cpu_dma_latency ] || fail "--awake needs /dev/cpu_dma_latency (CONFIG_CPU_IDLE)"
	# Held for as long as it is open; programs started from here have it too.
	exec 3>/dev/cpu_dma_latency
	printf '\0\0\0\0' >&3
fi

mkdir -p "$out"
{
	uname -srm
	grep -m 1 'model name' /proc/cpuinfo || true
	echo "processors: $(nproc)"
	"$jdk/bin/java" -version 2>&1
	echo "commit: $(git rev-parse HEAD 2>/dev/null || echo unknown)"
	echo "length: $length; parts: $parts${awake:+; awake}"
	echo "load at the start: $(cut -d' ' -f1-3 /proc/loadavg)"
	echo "libfuse 3: $library"
	echo "libraries: $(ls bindings/java/bench/target/lib | grep -E "^(jfuse-[0-9]|jnr-fuse|jmh-core)" | tr "\n" " ")"
} >"$out/machine.txt"

# ours TRANSPORT: sets $stack, and $null, after which options, --data, {src} and {mnt} go.
ours() {
	stack="exec '$target/release/bickford' mount -f --preset opt --transport $1 {src} {mnt}"
	null="exec '$java/bin/javafuse' -f --class io.github.bickfordfs.examples.NullFs \
--classpath '$java/target/test-classes' -o preset=opt,transport=$1,prompt"
}

# round_trip LABEL TRANSPORT [COMMAND ...]: COMMAND runs all of it, such as taskset. The directories are in
# memory, where no journal makes one configuration wait for what another one wrote. The peers have no
# extended attributes, and the kernel checks no permissions for them; as-peers is JavaFuse1 without these too.
round_trip() {
	label=$1
	ours "$2"
	shift 2
	echo "== round trip, $label"
	# shellcheck disable=SC2086 # the options are words
	"$@" "$jdk/bin/java" --enable-native-access=ALL-UNNAMED -cp "$classes" -Djava.io.tmpdir=/dev/shm \
		io.github.bickfordfs.bench.RoundTrip --out "$out/round_trip-$label" \
		$round_trip_length \
		"stackfs=$stack" "javafuse1=$null --data none {src} {mnt}" \
		"javafuse2=$null --data copied {src} {mnt}" "shared=$null --data shared {src} {mnt}" \
		"as-peers=$null,no_xattr,no_permission_checks --data none {src} {mnt}" \
		"jfuse=$jfuse" "jnr-fuse=$jnr"
}

# The peers have the cheapest settings here, with names and attributes cached for good; java-fast is JavaFuse1 with
# the preset that does so too, and without what the peers do not have.
micro() {
	ours auto
	fast=$(printf '%s' "$null" | sed 's/preset=opt/preset=fast/')
	# shellcheck disable=SC2086 # the options are words
	BICKFORD_BIN=$target/release/bickford "$target/release/compare" --out "$out/micro" --only native --no-build $micro_length \
		--with "stackfs=$stack" --with "javafuse1=$null --data none {src} {mnt}" \
		--with "javafuse2=$null --data copied {src} {mnt}" --with "shared=$null --data shared {src} {mnt}" \
		--with "java-fast=$fast,no_xattr,no_permission_checks --data none {src} {mnt}" \
		--with "jfuse=$jfuse_null --cheapest {src} {mnt}" --with "jnr-fuse=$jnr_null --cheapest {src} {mnt}"
	# As the last daemon said: the kernel's setting alone does not tell what was used.
	transport=$(sed -n 's/.* transport="\([^"]*\)".*/\1/p' "$out/micro/logs/stackfs.log" | tail -n 1)
	echo "micro: --transport auto was ${transport:-not told}" | tee -a "$out/machine.txt"
}

# ratios REPORT.CSV: what each configuration does of what StackFS does, by medians; more is better.
ratios() {
	echo "throughput against StackFS with the same preset (medians)"
	sed 's/"[^"]*"/name/' "$1" | awk -F, '
		NR > 1 && $4 == "opt" { opt[$1] = $7 }
		NR > 1 && $4 == "native" { order[++rows] = $1 }
		NR > 1 && $4 != "opt" { median[$1, $4] = $7; if (!($4 in seen)) { seen[$4]; names[++configs] = $4 } }
		END {
			printf "%-8s", "row"
			for (i = 1; i <= configs; i++) printf " %16s", names[i]
			print ""
			for (r = 1; r <= rows; r++) {
				printf "%-8s", order[r]
				for (i = 1; i <= configs; i++) {
					value = median[order[r], names[i]]
					if (value > 0 && opt[order[r]] > 0) printf " %16.3f", value / opt[order[r]]
					else printf " %16s", "failed"
				}
				print ""
			}
		}'
}

for part in $parts; do
	case $part in
	round-trip)
		# On one processor the cost of waking another is left out, and the crossing shows.
		round_trip dev-one-cpu dev taskset -c 0
		round_trip dev dev
		round_trip uring uring
		;;
	micro)
		echo "== each operation, bench/compare"
		micro
		;;
	eval)
		echo "== SAC'10: PostMark, large copy, Bonnie's phases"
		# shellcheck disable=SC2086 # the options are words
		scripts/eval-java.sh --config "jfuse=$jfuse" --config "jnr-fuse=$jnr" --suite sac10 --device ram \
			$eval_length --out "$out/eval"
		ratios "$out/eval/report.csv" | tee "$out/eval_ratios.txt"
		;;
	crossing)
		echo "== the crossing, JMH"
		# shellcheck disable=SC2086 # the options are words
		BICKFORD_LIBRARY=$target/release/libbickford_ffi.so \
			"$jdk/bin/java" --enable-native-access=ALL-UNNAMED -cp "$classes" org.openjdk.jmh.Main \
			-prof gc -rf json -rff "$out/crossing.json" $crossing_length Crossing >"$out/crossing.txt"
		cat "$out/crossing.txt"
		;;
	esac
done
echo "bench-java: the results are in $out"
