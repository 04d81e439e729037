#!/usr/bin/python3
"""plot.py SWEEP.json LOAD.json FOLDER: makes results.md, and the pictures as PNG and SVG, from what the experiment has measured."""
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "fairlead"  # the same picture is the same file
NAMES = {
    "coredns": "CoreDNS, cache 30",
    "coredns-uncached": "CoreDNS, zone not cached",
    "fairlead": "Fairlead, parking 1 s (default)",
    "fairlead-4s": "Fairlead, annotated 4 s",
    "fairlead-nopark": "Fairlead, parking off",
}
COLOURS = {"coredns": "#c0392b", "coredns-uncached": "#e67e22", "fairlead": "#1f618d", "fairlead-4s": "#27ae60", "fairlead-nopark": "#7f8c8d"}
VARIANTS = {"plain": "no other Service", "object": "an unrelated Service\nappears at the same time", "awaited": "workers wait for the\nunrelated Service's pod (4 s)"}


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def save(fig, folder, name):
    fig.tight_layout()
    fig.savefig(f"{folder}/{name}.png", dpi=110)
    fig.savefig(f"{folder}/{name}.svg", metadata={"Date": None})
    plt.close(fig)


def span(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def seconds(rows, **want):
    return [r["Seconds"] for r in rows if r["OK"] == 3 and all(r[k] == v for k, v in want.items())]


def sweep_table(rows, out):
    timeouts = sorted({r["Timeout"] for r in rows if r["What"] == "sweep"})
    for variant, title in VARIANTS.items():
        out.append(f"\n### {title.replace(chr(10), ' ').capitalize()}\n")
        out.append("| server | " + " | ".join("none" if t == 0 else f"{t:.0f} s" for t in timeouts) + " |")
        out.append("|---" * (len(timeouts) + 1) + "|")
        for server, label in NAMES.items():
            cells = [seconds(rows, What="sweep", Server=server, Variant=variant, Timeout=t) for t in timeouts]
            if any(cells):
                out.append(f"| {label} | " + " | ".join(span(c) if c else "–" for c in cells) + " |")


def shot_table(rows, out):
    out.append("\n### One look-up at the start, no second try: how many of them find the name\n")
    out.append("| server | name after 1 s | after 3 s |\n|---|---|---|")
    for server, label in NAMES.items():
        cells = []
        for publish in (1, 3):
            got = [r for r in rows if r["What"] == "oneshot" and r["Server"] == server and r["Publish"] == publish]
            cells.append(f"{sum(r['OK'] for r in got)} of {3 * len(got)}, ends after {span([r['Seconds'] for r in got])} s" if got else "–")
        out.append(f"| {label} | {cells[0]} | {cells[1]} |")
    out.append("\n### What parking costs: longest silence of another, healthy ZeroMQ socket of the same context\n")
    out.append("| server | name after 3 s |\n|---|---|")
    for server, label in NAMES.items():
        got = seconds(rows, What="stall", Server=server)
        if got:
            out.append(f"| {label} | {span(got)} s |")


def sweep_plot(rows, folder):
    fig, (top, low_ax) = plt.subplots(2, 1, figsize=(9, 6), sharex=True, gridspec_kw={"height_ratios": [1, 2]})
    timeouts = sorted({r["Timeout"] for r in rows if r["What"] == "sweep"})
    for i, (server, label) in enumerate(NAMES.items()):
        xs, mid, low, high = [], [], [], []
        for t in timeouts:
            got = seconds(rows, What="sweep", Server=server, Variant="plain", Timeout=t)
            if got:
                m = statistics.median(got)
                xs.append(t + (i - 2) * 0.12)
                mid.append(m)
                low.append(m - min(got))
                high.append(max(got) - m)
        if xs:
            ax = top if min(mid) > 10 else low_ax
            ax.errorbar(xs, mid, yerr=[low, high], marker="o", ms=4, capsize=2, lw=1.2, color=COLOURS[server], label=label)
    low_ax.axhline(3, color="black", lw=0.8, ls=":")
    low_ax.text(-0.4, 2.97, "the names are published", va="top", fontsize=8)
    top.set_ylim(28, 32)
    low_ax.set_ylim(2.9, 3.7)
    low_ax.set_xticks(timeouts, ["none" if t == 0 else f"{t:.0f}" for t in timeouts])
    low_ax.set_xlabel("ZMQ_CONNECT_TIMEOUT, s")
    low_ax.set_ylabel("s until all three workers have an answer (two scales)", y=0.8)
    top.set_title("A broker whose name is published 3 s after the workers start")
    for ax in (top, low_ax):
        ax.legend(fontsize=8, loc="upper right", ncols=2)
        ax.grid(alpha=0.3)
    save(fig, folder, "connect-timeout")


def variant_plot(rows, folder):
    fig, ax = plt.subplots(figsize=(9, 4.5))
    servers = ["coredns", "coredns-uncached", "fairlead", "fairlead-4s"]
    for i, server in enumerate(servers):
        xs, mid, low, high = [], [], [], []
        for x, variant in enumerate(VARIANTS):
            got = seconds(rows, What="sweep", Server=server, Variant=variant)
            if got:
                m = statistics.median(got)
                xs.append(x + (i - 1.5) * 0.2)
                mid.append(m)
                low.append(m - min(got))
                high.append(max(got) - m)
        bars = ax.bar(xs, mid, 0.19, yerr=[low, high], capsize=2, color=COLOURS[server], label=NAMES[server])
        ax.bar_label(bars, [f"{m:.1f}" for m in mid], fontsize=8, padding=2)
    ax.set_xticks(range(3), VARIANTS.values())
    ax.set_ylabel("s until all three workers have an answer\n(all connect timeouts together)")
    ax.set_title("Why “an unrelated Service helps”: the time it takes, not the Service")
    ax.legend(fontsize=8)
    ax.grid(axis="y", alpha=0.3)
    save(fig, folder, "unrelated-service")


def load_part(rows, folder, out):
    servers = ["fairlead", "coredns", "coredns-uncached"]
    out.append("\n### Load: 50 000 names, one CPU for each server, asked in turns of one run\n")
    out.append("| server | queries/s, saturated | p99, ms | p99 at the same modest rate, ms | lost at that rate |\n|---|---|---|---|---|")
    mid = {}
    for s in servers:
        sat = [r for r in rows if r["Server"] == s and r["Mode"] == "saturated"]
        paced = [r for r in rows if r["Server"] == s and r["Mode"] == "paced"]
        mid[s] = (statistics.median(r["QPS"] for r in sat), statistics.median(r["P99"] for r in sat), statistics.median(r["P99"] for r in paced))
        lost = sum(r["Lost"] for r in paced) / max(1, sum(r["Asked"] for r in paced))
        out.append(f"| {NAMES[s]} | {mid[s][0]:.0f} ({min(r['QPS'] for r in sat):.0f}–{max(r['QPS'] for r in sat):.0f}) | {mid[s][1]:.1f} | {mid[s][2]:.1f} | {100 * lost:.1f} % |")
    for other in servers[1:]:
        ratios = []
        for k in sorted({r["Round"] for r in rows}):
            one = {r["Server"]: r["QPS"] for r in rows if r["Round"] == k and r["Mode"] == "saturated"}
            ratios.append(one["fairlead"] / one[other])
        out.append(f"\nFairlead answers {statistics.median(ratios):.1f} times ({min(ratios):.1f}–{max(ratios):.1f}) the queries of {NAMES[other]}.")
    fig, axes = plt.subplots(1, 2, figsize=(9, 3.8))
    for ax, k, title in ((axes[0], 0, "queries a second, saturated"), (axes[1], 2, "p99 at the same modest rate, ms")):
        bars = ax.bar(range(3), [mid[s][k] for s in servers], color=[COLOURS[s] for s in servers])
        ax.bar_label(bars, [f"{mid[s][k]:.0f}" if k == 0 else f"{mid[s][k]:.1f}" for s in servers], fontsize=9)
        ax.set_xticks(range(3), ["Fairlead", "CoreDNS,\ncache 30", "CoreDNS,\nnot cached"])
        ax.set_title(title, fontsize=10)
        ax.margins(y=0.12)
        ax.grid(axis="y", alpha=0.3)
    save(fig, folder, "load")


def main():
    sweep, load, folder = lines(sys.argv[1]), lines(sys.argv[2]), sys.argv[3]
    out = ["# Results", "", "Written by test/headless/plot.py; README.md says what it means. Seconds, median (min–max)."]
    sweep_table(sweep, out)
    shot_table(sweep, out)
    sweep_plot(sweep, folder)
    variant_plot(sweep, folder)
    load_part(load, folder, out)
    with open(f"{folder}/results.md", "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


main()
