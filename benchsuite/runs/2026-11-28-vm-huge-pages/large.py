"""Large reads and writes through the daemon, beside each other, in turn.

usage: large.py SIZE ROUNDS NAME=COMMAND [OPTION ...] [, NAME=COMMAND ...]

COMMAND is `bickford`; the options are for its `mount`, SIZE one of fio. As root, with fio and io_uring for FUSE on. SOURCE is an
ext4 in memory. Before the rounds that are counted comes one that is not.
"""

import json
import os
import statistics
import subprocess
import sys

HERE = "/tmp/bickford-large"
SOURCE, MOUNT, IMAGE = f"{HERE}/source", f"{HERE}/mount", "/dev/shm/bickford-large.img"
CLIENTS = (1, 2, 8, 32)


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout


def fio(directory, clients, operation, size):
    """Bytes a second in units of 10^9: 512 MiB of files, 16 times, divided among threads."""
    out = run(
        "fio", "--name=x", f"--directory={directory}", f"--numjobs={clients}", "--thread",
        f"--rw={operation}", f"--bs={size}", f"--size={512 // clients}M", "--loops=16", "--ioengine=psync",
        "--iomem_align=4096", "--invalidate=0", "--fallocate=none", "--group_reporting",
        "--output-format=json",
    )
    return json.loads(out[out.index(b"{"):])["jobs"][0][operation]["bw_bytes"] / 1e9


def configurations(words):
    for part in " ".join(words).split(","):
        name, command = part.strip().split("=", 1)
        command, *options = command.split()
        yield name, command, options


def main():
    size, rounds, configs = sys.argv[1], int(sys.argv[2]), list(configurations(sys.argv[3:]))
    for directory in (SOURCE, MOUNT):
        os.makedirs(directory, exist_ok=True)
    run("truncate", "-s", "4G", IMAGE)
    run("mkfs.ext4", "-q", "-F", IMAGE)
    run("mount", "-o", "loop", IMAGE, SOURCE)
    rates = {}
    try:
        for number in range(rounds + 1):
            shift = number % len(configs)
            for row in [(o, c) for o in ("read", "write") for c in CLIENTS]:
                for name, command, options in configs[shift:] + configs[:shift]:
                    run(command, "mount", "--preset", "fast", "--io", "direct", *options, SOURCE, MOUNT)
                    try:
                        rate = fio(MOUNT, row[1], row[0], size)
                    finally:
                        run(command, "unmount", MOUNT)
                    if number > 0:
                        rates.setdefault((row, name), []).append(rate)
    finally:
        run("umount", SOURCE)
        os.remove(IMAGE)
    first = configs[0][0]
    for (row, name), found in sorted(rates.items()):
        ratios = [a / b for a, b in zip(found, rates[row, first])]
        print(
            f"{row[0]:5} {row[1]:2} clients {name:10} median {statistics.median(found):5.2f} GB/s, of {first}'s rate"
            f" {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}):",
            " ".join(f"{rate:.2f}" for rate in found),
        )


main()
