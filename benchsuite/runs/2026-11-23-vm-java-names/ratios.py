"""Ratios within rounds, their median with the least and the most, for one and eight clients.

python3 ratios.py >ratios.txt, in the directory of micro/samples.jsonl
"""
import collections
import json
import statistics

samples = collections.defaultdict(dict)
for line in open("micro/samples.jsonl"):
    sample = json.loads(line)
    if sample["round"] > 0 and not sample.get("error"):
        place = sample["row"], sample["clients"], sample["configuration"]
        samples[place][sample["round"]] = sample["ns"] / sample["ops"]
rows = list(dict.fromkeys(row for row, _, _ in samples))

for over, under in [
    ("javafuse1", "stackfs"), ("javafuse2", "stackfs"), ("shared", "stackfs"),
    ("jfuse", "javafuse1"), ("jfuse", "java-fast"), ("jnr-fuse", "javafuse1"), ("jnr-fuse", "java-fast"),
]:
    print(f"time of {over} over that of {under}")
    for row in rows:
        cells = []
        for clients in (1, 8):
            a, b = samples.get((row, clients, over), {}), samples.get((row, clients, under), {})
            found = sorted(a[number] / b[number] for number in a if number in b)
            if found:
                cells.append(f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})")
        print(f"  {row:<16} {', '.join(cells)}")
