#!/bin/sh
# Reads of 1 MiB through the daemon (--io=direct) by transport and by the size that pipes may have, in turn;
# the first round does not count. As root, on a machine that does nothing else; BICKFORD names the command.
set -eu
rounds=${1:-7}
dir=$(mktemp -d /var/tmp/direct.XXXXXX)
most=$(cat /proc/sys/fs/pipe-max-size)
finish() {
	echo "$most" >/proc/sys/fs/pipe-max-size
	umount "$dir/lower" 2>/dev/null || true
	rm -rf --one-file-system "$dir" "$image"
}
image=$(mktemp /dev/shm/direct.XXXXXX)
trap finish EXIT
truncate -s 1G "$image"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$image"
mkdir "$dir/lower" "$dir/mnt"
mount -o loop "$image" "$dir/lower"
head -c 256M /dev/urandom >"$dir/lower/file"

# Bytes per second of reading the file four times, all of it in the lower page cache.
rate() {
	cat "$dir/lower/file" >/dev/null
	begin=$(date +%s%N)
	for _ in 1 2 3 4; do dd if="$1/file" of=/dev/null bs=1M status=none; done
	end=$(date +%s%N)
	echo $((4 * 256 * 1048576 * 1000000 / ((end - begin) / 1000)))
}

one() {
	name=$1
	shift
	"$BICKFORD" mount --preset fast --io direct "$@" "$dir/lower" "$dir/mnt" >/dev/null 2>&1
	echo "$round $name $(rate "$dir/mnt")"
	"$BICKFORD" unmount "$dir/mnt"
}

echo "round way bytes_per_second"
for round in $(seq 0 "$rounds"); do
	echo "$round native $(rate "$dir/lower")"
	one io_uring --transport uring
	echo 1048576 >/proc/sys/fs/pipe-max-size
	one dev-pipes-1MiB --transport dev
	echo 2097152 >/proc/sys/fs/pipe-max-size
	one dev-pipes-2MiB --transport dev
done
