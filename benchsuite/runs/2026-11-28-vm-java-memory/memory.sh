#!/bin/sh
# The memory of a virtual machine that serves NullFs (preset opt, calls without data) over a directory in memory, after PostMark of
# 500 files and 10,000 transactions, with several options, twice each. From the top of the repository, as root, with what
# `cargo build --release` and `mvn -f bindings/java package` made: sh memory.sh >memory.txt
#
# Before bin/javafuse had options of its own.
set -eu

place=$(mktemp -d)
mkdir "$place/source" "$place/mnt"
mount -t tmpfs none "$place/source"
printf 'set location %s\nset number 500\nset size 1000 65536\nset transactions 10000\nrun\nquit\n' "$place/mnt" >"$place/postmark"

try() {
	JAVAFUSE_JAVA_OPTIONS="-XX:MaxRAM=2g $1" setsid bindings/java/bin/javafuse \
		--class io.github.bickfordfs.examples.NullFs --classpath bindings/java/target/test-classes --data none -o preset=opt \
		"$place/source" "$place/mnt" >"$place/log" 2>&1 &
	until mountpoint -q "$place/mnt"; do sleep 0.1; done
	postmark "$place/postmark" >/dev/null
	process=$(pgrep -f bickfordfs.Main | tail -n 1)
	echo "${1:-(none)}: $(awk '/^Rss|^Pss_Anon|^Pss_File/ { printf "%s %d MiB ", $1, $2 / 1024 }' "/proc/$process/smaps_rollup")"
	target/release/bickford unmount "$place/mnt" >/dev/null
	wait
}

for _ in 1 2; do
	try ''
	try '-XX:+UseSerialGC'
	try '-XX:+UseSerialGC -Xms8m'
	try '-XX:+UseSerialGC -Xms8m -XX:TrimNativeHeapInterval=1000'
	try '-XX:+UseSerialGC -Xms8m -Xmn4m -XX:TrimNativeHeapInterval=1000'
	try '-Xms8m -XX:TrimNativeHeapInterval=1000'
	try '-XX:+UseSerialGC -XX:TrimNativeHeapInterval=5000'
done
umount "$place/source"
rm -r "$place"
