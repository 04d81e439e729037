#!/usr/bin/python3
"""plot.py FOLDER RESULT.json...: makes results.md, and the pictures as SVG and PNG, from what the bench has measured."""
import collections
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "fairlead"  # the same picture is the same file
KINDS = [  # kind, packets, awake, label
    ("crr", "", False, "TCP_CRR, no long connection on the node"),
    ("crr", "", True, "TCP_CRR beside long connections"),
    ("stream", "mtu", False, "TCP_STREAM, MTU-sized packets"),
    ("stream", "gso", False, "TCP_STREAM, GSO"),
    ("rr", "", False, "TCP_RR"),
    ("udprr", "", False, "UDP_RR"),
    ("udpstream", "", False, "UDP_STREAM, MTU-sized"),
]


def read(paths):
    rows = []
    for path in paths:
        with open(path, encoding="utf-8") as f:
            rows += [json.loads(line) for line in f if line.strip()]
    return rows


def ratios(rows, **want):
    """off / variant, round by round: above 1 the variant does more in the same time."""
    by = collections.defaultdict(dict)
    for r in rows:
        if all(r.get(k, type(v)()) == v for k, v in want.items()):
            by[r["variant"]][r["round"]] = r["ns"]
    off = by.get("off", {})
    return {v: [off[n] / ns for n, ns in one.items() if n in off] for v, one in by.items()}, by


def span(values):
    return f"{statistics.median(values):.3f} ({min(values):.3f}–{max(values):.3f})" if values else "–"


def save(fig, folder, name):
    fig.tight_layout()
    fig.savefig(f"{folder}/{name}.png", dpi=110)
    fig.savefig(f"{folder}/{name}.svg", metadata={"Date": None})
    plt.close(fig)


def thresholds(rows, folder, out):
    order = ["0", "2", "4", "8", "20", "50"]
    rounds = len({r["round"] for r in rows if r["part"] == "thresholds" and r["variant"] == "off"})
    out.append(f"\n## Thresholds: ratio to off, median (least–greatest) of up to {rounds} paired rounds\n")
    out.append("| | off | " + " | ".join(order) + " |\n|---" + "|---" * (len(order) + 1) + "|")
    fig, axis = plt.subplots(figsize=(8, 4.5))
    for kind, packets, awake, label in KINDS:
        got, by = ratios(rows, part="thresholds", kind=kind, packets=packets, awake=awake)
        if not got:
            continue
        ns = statistics.median(by["off"].values())
        unit = f"{8e9 / ns:.0f} Mbit/s, {ns / 1e6:.1f} s/GB" if "stream" in kind else f"{1e9 / ns:.0f}/s"
        out.append(f"| {label} | {unit} | " + " | ".join(span(got.get(v, [])) for v in order) + " |")
        xs = [v for v in order if got.get(v)]
        axis.plot(xs, [statistics.median(got[v]) for v in xs], marker="o", label=label)
    axis.axhline(1, color="grey", linewidth=0.8)
    axis.axhline(0.98, color="grey", linewidth=0.5, linestyle=":")
    axis.set_xlabel("threshold, packets")
    axis.set_ylabel("throughput, ratio to off")
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    save(fig, folder, "thresholds")


def placement(rows, out):
    got, by = ratios(rows, part="placement", kind="crr")
    if not got:
        return
    out.append("\n## Where the threshold of 20 is tested: TCP_CRR, ratio to off\n\n| placement | ns | ratio |\n|---|---|---|")
    for v in sorted(got, key=lambda v: -statistics.median(got[v] or [0])):
        out.append(f"| {v} | {statistics.median(by[v].values()):.0f} | {span(got[v])} |")


def crossover(rows, folder, out):
    rows = [r for r in rows if r["part"] == "crossover"]
    sizes = sorted({r["bytes"] for r in rows})
    if not sizes:
        return
    fig, axis = plt.subplots(figsize=(8, 4.5))
    out.append("\n## Crossover: a connection that fetches so many bytes, ratio to off\n")
    out.append("| packets, threshold | " + " | ".join(f"{s:,}" for s in sizes) + " |\n|---" + "|---" * len(sizes) + "|")
    for packets, style in [("mtu", "-"), ("gso", "--")]:
        for v in ["0", "4", "20"]:
            cells = []
            for s in sizes:
                by = collections.defaultdict(dict)
                for r in rows:
                    if r["packets"] == packets and r["bytes"] == s:
                        by[r["variant"]][r["round"]] = r["ns"]
                cells.append([by["off"][n] / ns for n, ns in by[v].items() if n in by["off"]])
            out.append(f"| {packets}, {v} | " + " | ".join(span(c) for c in cells) + " |")
            xs = [s for s, c in zip(sizes, cells) if c]
            axis.plot(xs, [statistics.median(c) for c in cells if c], style, marker=".", label=f"{packets.upper()}, threshold {v}")
    axis.set_xscale("log")
    axis.axhline(1, color="grey", linewidth=0.8)
    axis.set_xlabel("bytes of a connection")
    axis.set_ylabel("connections in the same time, ratio to off")
    axis.legend(fontsize=7)
    save(fig, folder, "crossover")


def main():
    folder, rows = sys.argv[1], read(sys.argv[2:])
    out = ["<!-- made by bench/acceleration/plot.py -->"]
    thresholds(rows, folder, out)
    placement(rows, out)
    crossover(rows, folder, out)
    with open(f"{folder}/results.md", "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


main()
