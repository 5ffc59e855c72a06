"""32 threads that each write 4 KiB of one file and fsync it, 5 times: through a mount and natively, in turn.

    bickford mount LOWER MOUNTPOINT                 # LOWER on a file system of its own
    bickford trace MOUNTPOINT --opcode FSYNC --format json --duration 20 >trace.json &
    python3 fsync-in-turn.py LOWER MOUNTPOINT >result.txt
    wait; python3 fsync-in-turn.py trace.json >>result.txt

The first round is not counted. With the trace alone: how many FSYNCs began before the one before had been
answered.
"""
import json
import os
import statistics
import sys
import threading
import time

THREADS, TIMES, ROUNDS = 32, 5, 9


def work(path, index):
    descriptor = os.open(path, os.O_RDWR)
    for _ in range(TIMES):
        os.pwrite(descriptor, b"y" * 4096, index * 4096)
        os.fsync(descriptor)
    os.close(descriptor)


def once(path):
    with open(path, "wb") as file:
        file.write(b"x" * (1 << 20))
        file.flush()
        os.fsync(file.fileno())
    threads = [threading.Thread(target=work, args=(path, index)) for index in range(THREADS)]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1000 * (time.monotonic() - begun)


def overlaps(name):
    with open(name) as file:
        requests = sorted((json.loads(line) for line in file), key=lambda one: one["sent_us"])
    pairs = list(zip(requests, requests[1:]))
    early = sum(one["sent_us"] + one["total_us"] > other["sent_us"] for one, other in pairs)
    print(f"{len(requests)} FSYNCs, {early} of them sent before the one before was answered")


def main():
    if len(sys.argv) == 2:
        return overlaps(sys.argv[1])
    paths = {"native": sys.argv[1] + "/native", "mount": sys.argv[2] + "/mounted"}
    samples = {name: [] for name in paths}
    for number in range(ROUNDS + 1):
        for name, path in paths.items():
            value = once(path)
            if number:
                samples[name].append(value)
    for name, values in samples.items():
        listed = " ".join(f"{value:.1f}" for value in values)
        print(f"{name}: median {statistics.median(values):.1f} ms of {listed}")


main()
