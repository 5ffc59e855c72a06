#!/bin/sh
# A copy of 1.1 GB by copy_file_range(2) on ext4, with and without the POSIX_FADV_SEQUENTIAL that cp(1) gives, in
# turn; the first round is not counted. Needs root. DIR is where the loop device's file is made: a disk or a tmpfs.
#   sh copy-advice.sh DIR ROUNDS
set -eu

dir=$(mktemp -d "$1/copy-advice-XXXXXX")
mkdir "$dir/lower"
head -c 3500M /dev/zero >"$dir/image"
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$dir/image"
loop=$(losetup -f --show --direct-io=on "$dir/image")
trap 'umount "$dir/lower" 2>/dev/null || true; losetup -d "$loop"; rm -r "$dir"' EXIT

fresh() {
	if mountpoint -q "$dir/lower"; then umount "$dir/lower"; fi
	sync
	echo 3 >/proc/sys/vm/drop_caches
	mount "$loop" "$dir/lower"
}

fresh
head -c 1180000000 /dev/urandom >"$dir/lower/from"
for round in $(seq 0 "$2"); do
	for advice in none sequential; do
		rm -f "$dir/lower/to"
		fresh
		python3 - "$dir/lower" "$advice" "$round" <<'PYTHON'
import os, resource, sys, time

lower, advice, round_ = sys.argv[1:]
source = os.open(lower + "/from", os.O_RDONLY)
target = os.open(lower + "/to", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
size = os.fstat(source).st_size
begin = time.monotonic()
if advice == "sequential":
    os.posix_fadvise(source, 0, 0, os.POSIX_FADV_SEQUENTIAL)
done = 0
while done < size:
    done += os.copy_file_range(source, target, size - done)
took = time.monotonic() - begin
cpu = resource.getrusage(resource.RUSAGE_SELF)
print(f"round {round_} advice {advice:10} {took:.3f} s, cpu {cpu.ru_utime + cpu.ru_stime:.2f} s", flush=True)
PYTHON
	done
done
