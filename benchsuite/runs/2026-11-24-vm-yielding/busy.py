"""LOOKUP round trips beside spinning processes, with threads that yield to callers and without, in turn.

    python3 busy.py target/release/bickford ROUNDS > busy.jsonl     (root; enable_uring is Y)
    python3 busy.py --table busy.jsonl > busy.txt

One line a run: how many processes spin, what the caller computes between its calls, and percentiles of
the caller's time in stat(2) of names that the mount has not seen, in microseconds. The daemon and the
spinning processes have sessions of their own. The first round is not counted.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

FILES = 8000
SPINNING = (0, 1, 2, 4)
THINK_US = (0, 50)
WAYS = {"yielding": [], "not yielding": ["--no-yielding"]}


def spin(count):
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os.setsid()
            while True:
                pass
        children.append(child)
    return children


def calls(directory, think_us):
    at = os.open(directory, os.O_PATH)
    times = []
    for number in range(FILES):
        begun = time.perf_counter_ns()
        os.stat(f"f{number}", dir_fd=at)
        ended = time.perf_counter_ns()
        times.append((ended - begun) / 1000)
        while time.perf_counter_ns() < ended + think_us * 1000:
            pass
    os.close(at)
    return sorted(times)


def run(bickford, lower, point, way, spinning, think_us):
    subprocess.run([bickford, "mount", *WAYS[way], lower, point], check=True, stderr=subprocess.DEVNULL)
    children = []
    try:
        os.stat(point + "/d")
        children = spin(spinning)
        times = calls(point + "/d", think_us)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        subprocess.run([bickford, "unmount", point], check=True)
    at = lambda share: round(times[int(share * (len(times) - 1))], 1)
    return {"mean": round(statistics.fmean(times), 1), "p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999), "max": at(1)}


def measure(bickford, rounds):
    with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
        image, lower, point = work + "/image", work + "/lower", work + "/mnt"
        os.mkdir(lower)
        os.mkdir(point)
        subprocess.run(["truncate", "-s", "1G", image], check=True)
        subprocess.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, lower], check=True)
        try:
            os.mkdir(lower + "/d")
            for number in range(FILES):
                open(f"{lower}/d/f{number}", "w").close()
            for number in range(rounds + 1):
                for spinning in SPINNING:
                    for think_us in THINK_US:
                        for way in WAYS:
                            found = run(bickford, lower, point, way, spinning, think_us)
                            line = {"round": number, "way": way, "spinning": spinning, "think_us": think_us, **found}
                            print(json.dumps(line), flush=True)
        finally:
            subprocess.run(["umount", lower], check=True)


def table(path):
    runs = [json.loads(line) for line in open(path)]
    print("medians of rounds (least to greatest), microseconds\n")
    print(f"{'spinning':>8} {'between':>8} {'':14}", *(f"{name:>26}" for name in ("mean", "p50", "p99", "p99.9")))
    for spinning in SPINNING:
        for think_us in THINK_US:
            for way in WAYS:
                of = [r for r in runs if r["round"] and (r["spinning"], r["think_us"], r["way"]) == (spinning, think_us, way)]
                cells = []
                for name in ("mean", "p50", "p99", "p99.9"):
                    values = sorted(r[name] for r in of)
                    cells.append(f"{statistics.median(values):8} ({values[0]} to {values[-1]})")
                print(f"{spinning:8} {think_us:8} {way:14}", *(f"{cell:>26}" for cell in cells))


if sys.argv[1] == "--table":
    table(sys.argv[2])
else:
    measure(sys.argv[1], int(sys.argv[2]))
