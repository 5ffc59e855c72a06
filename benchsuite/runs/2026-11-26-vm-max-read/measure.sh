#!/bin/bash
# Microseconds for each MiB read and written through the daemon (--io direct, io_uring) by requests of
# at most 1 MiB, 512 KiB, 256 KiB and 128 KiB, and natively, in turn; the first round is to be left out.
# Ratios are those of a round's two reads together to those by requests of 1 MiB. Needs enable_uring of the module fuse.
#     sudo benchsuite/runs/2026-11-26-vm-max-read/measure.sh target/release/bickford > rates.txt
set -eu
bickford=$1
dir=$(mktemp -d)
mkdir "$dir/ram" "$dir/ext4" "$dir/mnt"
mount -t tmpfs -o size=3G none "$dir/ram"
truncate -s 2G "$dir/ram/image"
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$dir/ram/image"
mount -o loop "$dir/ram/image" "$dir/ext4"
head -c 512M /dev/urandom > "$dir/ext4/file"
move() {
    python3 - "$1" "$2" <<'P'
import os, sys, time
flags = os.O_RDONLY if sys.argv[2] == "read" else os.O_WRONLY
fd, buffer, count = os.open(sys.argv[1], flags), bytearray(1 << 20), 512
began = time.perf_counter()
for at in range(count):
    if flags == os.O_RDONLY:
        moved = os.preadv(fd, [buffer], at << 20)
    else:
        moved = os.pwritev(fd, [buffer], at << 20)
    assert moved == 1 << 20
print(f"{(time.perf_counter() - began) / count * 1e6:.1f}", end=" ")
P
}
for round in $(seq 0 7); do
    for size in 1048576 524288 262144 131072; do
        setsid "$bickford" mount --io direct --transport uring -o max_read=$size "$dir/ext4" "$dir/mnt"
        echo -n "round $round max_read $size: "
        for way in read read write write; do move "$dir/mnt/file" $way; done
        echo
        "$bickford" unmount "$dir/mnt"
    done
    echo -n "round $round native: "
    for way in read read write write; do move "$dir/ext4/file" $way; done
    echo
done
umount "$dir/ext4" "$dir/ram"
rm -r "$dir"
