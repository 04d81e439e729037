#!/usr/bin/python3
"""plot.py RESULTS.jsonl FOLDER: makes results.md, and the pictures as PNG and SVG, from what bench/modes has measured."""
import json
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

matplotlib.rcParams["svg.hashsalt"] = "fairlead"  # the same picture is the same file
MODES = ["nftables", "iptables-legacy", "iptables-nft", "ipvs", "userspace"]
COLOURS = {"nftables": "#1f618d", "iptables-legacy": "#c0392b", "iptables-nft": "#e67e22", "ipvs": "#27ae60", "userspace": "#7f8c8d"}
CROSSOVER = 1000  # Services, where the guide (docs/modes.md) saw iptables fall behind IPVS


def lines(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def series(rows, subject, value):
    """Pairs of Services and a figure, by the number of Services."""
    got = {r["Services"]: value(r) for r in rows if r["Subject"] == subject and not r.get("Failed") and r.get("AB")}
    return sorted(got.items())


def names(rows):
    have = {r["Subject"] for r in rows}
    return [f"{program}:{mode}" for mode in MODES for program in ("fairlead", "kube-proxy") if f"{program}:{mode}" in have]


def us(r, target):
    """The best round's median where there were rounds, because other work of the machine makes rounds slower, never faster."""
    return r["Connect"][target].get("Best") or r["Connect"][target]["Mean"]


def random_us(r):
    return us(r, "random")


def plot(rows, folder, name, value, label):
    fig, ax = plt.subplots(figsize=(9, 5))
    for subject in names(rows):
        program, mode = subject.split(":")
        points = series(rows, subject, value)
        if points:
            ax.plot(*zip(*points), marker="o" if program == "fairlead" else "x", ls="-" if program == "fairlead" else "--", lw=1.4, ms=5, color=COLOURS[mode], label=subject)
    ax.axvline(CROSSOVER, color="black", lw=0.8, ls=":")
    ax.text(CROSSOVER * 1.03, ax.get_ylim()[1], "the guide's crossover", va="top", fontsize=8)
    ax.set_xscale("log")
    sizes = sorted({r["Services"] for r in rows})
    ax.set_xticks(sizes, [str(n) for n in sizes], fontsize=8)
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.set_xlabel("Services")
    ax.set_ylabel(label)
    ax.legend(fontsize=8, ncols=2)
    ax.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(f"{folder}/{name}.png", dpi=110)
    fig.savefig(f"{folder}/{name}.svg", metadata={"Date": None})
    plt.close(fig)


def flat(rows, out):
    out.append("\n## From the fewest Services to the most\n")
    out.append("| subject | Services | random Service, us | its most / least of all sizes | the same of one Service | of a pod's own address |\n|---|---|---|---|---|---|")
    for subject in names(rows):
        points = series(rows, subject, random_us)
        if points:
            spans = []
            for target in ("random", "first", "direct"):
                values = [v for _, v in series(rows, subject, lambda r, t=target: us(r, t))]
                spans.append(f"{max(values) / min(values):.3f}")
            out.append(f"| {subject} | {points[0][0]} to {points[-1][0]} | {points[0][1]:.1f} to {points[-1][1]:.1f} | " + " | ".join(spans) + " |")


def tables(rows, out):
    for subject in names(rows):
        out.append(f"\n## {subject}\n")
        out.append("| Services | endpoints | ab, connect ms: min | mean | sd | median | max | total, mean | requests/s | lost | one connection, us: to a pod | first | last | random |")
        out.append("|---" * 14 + "|")
        for r in sorted((r for r in rows if r["Subject"] == subject), key=lambda r: r["Services"]):
            if r.get("Failed") or not r.get("AB"):
                out.append(f"| {r['Services']} | {r['Endpoints']} | not measured: not in sync after {r['SyncSeconds']:.0f} s of the guest, {r['SyncCPU']:.0f} s of CPU |" + " |" * 11)
                continue
            a = r["AB"]
            cells = [f"{a['Connect'][k]:.1f}" for k in ("Min", "Mean", "SD", "Median", "Max")] + [f"{a['Total']['Mean']:.1f}", f"{a['Rate']:.0f}", str(a["Failed"])]
            cells += [f"{us(r, k):.1f}" for k in ("direct", "first", "last", "random")]
            out.append(f"| {r['Services']} | {r['Endpoints']} | " + " | ".join(cells) + " |")


def main():
    rows, folder = lines(sys.argv[1]), sys.argv[2]
    done = next(r for r in rows if r.get("AB"))
    out = ["# Results", "", f"Written by bench/modes/plot.py; README.md says what it means. Linux {done['Kernel']}. "
           f"ab: {done['AB']['Requests']} short connections, {done['AB']['Clients']} clients at a time."]
    flat(rows, out)
    tables(rows, out)
    plot(rows, folder, "connect", random_us, "connect to a random Service, us")
    plot(rows, folder, "last", lambda r: us(r, "last"), "connect to the last Service of the list, us")
    with open(f"{folder}/results.md", "w", encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")


main()
