#!/usr/bin/env python3
"""Throughput (MB/s) and the kernel's time (s) of each counted round."""
import json
import pathlib
import statistics

here = pathlib.Path(__file__).parent
for kind in "kept", "given-back":
    rates, kernel = [], []
    for path in sorted(here.glob(kind + "-*.jsonl")):
        for line in path.read_text().splitlines():
            sample = json.loads(line)
            if sample["round"] > 0:
                measured = sample["outcome"]["measured"]
                rates.append(measured["throughput"])
                kernel.append(measured["system"]["system_s"])
    print(f"{kind:10} median {statistics.median(rates):5.0f} MB/s, {min(rates):.0f} to {max(rates):.0f}; "
          f"kernel {statistics.median(kernel):.2f} s, {min(kernel):.2f} to {max(kernel):.2f}")
