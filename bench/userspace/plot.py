#!/usr/bin/env python3
"""plot.py RESULTS.json OUT.svg: each round of bench-userspace as a dot, medians as bars; standard library only."""
import json, statistics, sys

rows = json.load(open(sys.argv[1]))
subjects = [s for s in dict.fromkeys(r["subject"] for r in rows) if s != "direct"]
panels = [("mb_per_s", "MB/s"), ("cpu_s_per_gb", "CPU s/GB"), ("connections_per_s", "connections/s"), ("cpu_us_per_connection", "CPU µs/connection")]
out = ['<svg xmlns="http://www.w3.org/2000/svg" width="880" height="260" font-family="sans-serif" font-size="12">', '<rect width="880" height="260" fill="white"/>']
for n, (key, title) in enumerate(panels):
    left, top, high, wide = 20 + n * 215, 40, 180, 60
    most = max(r[key] for r in rows if r["subject"] in subjects) or 1
    out.append(f'<text x="{left}" y="24" font-weight="bold">{title}</text>')
    for i, s in enumerate(subjects):
        values = [r[key] for r in rows if r["subject"] == s]
        mid = statistics.median(values)
        x, h = left + i * (wide + 5), mid / most * high
        out.append(f'<rect x="{x}" y="{top + high - h:.1f}" width="{wide}" height="{h:.1f}" fill="{["#3b7dd8", "#9aa5b1", "#c7cdd4"][i % 3]}"/>')
        for j, v in enumerate(values):
            out.append(f'<circle cx="{x + 8 + j * (wide - 16) / max(1, len(values) - 1):.1f}" cy="{top + high - v / most * high:.1f}" r="2" fill="black"/>')
        out.append(f'<text x="{x}" y="{top + high + 16}">{s}</text><text x="{x}" y="{top + high + 32}">{mid:.4g}</text>')
out.append("</svg>")
open(sys.argv[2], "w").write("\n".join(out) + "\n")
