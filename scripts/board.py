"""Draws a Grafana board's panels from what a Prometheus answers: board.py BOARD.json PROMETHEUS SECONDS OUT.svg

It knows what this project's board has: panels of the types stat and timeseries on Grafana's grid of 24 columns. A query without an
answer is written into its panel.
"""
import html
import json
import re
import sys
import time
import urllib.parse
import urllib.request

COLUMN, ROW, GAP = 50, 34, 8
COLOURS = ["#1f6fb4", "#c8471d", "#2c8a3d", "#7b4bb0", "#a07400", "#0b8a8a", "#b0307a", "#5a6470", "#3f51b5", "#8a5a2c"]


def ask(base, path, **params):
    with urllib.request.urlopen(f"{base}/api/v1/{path}?{urllib.parse.urlencode(params)}", timeout=30) as answer:
        return json.load(answer)["data"]["result"]


def say(value, unit):
    if unit == "s":
        return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s"
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if value >= 1 << 20:
        return f"{value / (1 << 20):.3g} Mi"
    return f"{value:.4g}" + ("/s" if unit == "ops" else "")


def legend(pattern, labels):
    words = re.sub(r"{{ *(\w+) *}}", lambda m: labels.get(m[1], ""), pattern or "")
    return words or ", ".join(f"{k}={v}" for k, v in labels.items() if k not in ("job", "__name__")) or "value"


def text(x, y, words, size=12, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" {more}>{html.escape(words)}</text>'


def draw_stat(rows, unit, w, h):
    words = say(float(rows[0][1][-1][1]), unit) if rows else "no answer"
    return [text(w / 2, h / 2 + 24, words, 30 if rows else 13, 'text-anchor="middle" fill="#2c8a3d"')]


def draw_lines(rows, unit, w, h, span):
    left, top, bottom, right = 62, 34, h - 40, w - 12
    out = []
    points = [(float(t), float(v)) for _, list_ in rows for t, v in list_ if v != "NaN"]
    if not points:
        return [text(w / 2, h / 2, "no answer: nothing has this metric here", 13, 'text-anchor="middle" fill="#5a6470"')]
    most = max(v for _, v in points) or 1
    for n in range(3):
        y = bottom - (bottom - top) * n / 2
        out.append(f'<line x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d5dae0"/>')
        out.append(text(left - 6, y + 4, say(most * n / 2, unit), 10, 'text-anchor="end"'))
    begin, end = span
    for n in range(4):
        x = left + (right - left) * n / 3
        out.append(text(x, bottom + 14, f"{(end - begin) * (n / 3 - 1):.0f} s", 10, 'text-anchor="middle"'))
    x = left
    for n, (name, list_) in enumerate(rows):
        colour = COLOURS[n % len(COLOURS)]
        line = " ".join(f"{left + (right - left) * (float(t) - begin) / (end - begin):.1f},{bottom - (bottom - top) * float(v) / most:.1f}" for t, v in list_ if v != "NaN")
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.5" points="{line}"/>')
        if x < right - 60:
            out.append(f'<rect x="{x}" y="{h - 17}" width="10" height="3" fill="{colour}"/>' + text(x + 14, h - 12, name[:40], 10))
            x += 24 + 5.6 * len(name[:40])
    return out


def panel(p, base, span):
    place = p["gridPos"]
    w, h = place["w"] * COLUMN - GAP, place["h"] * ROW - GAP
    unit = p["fieldConfig"]["defaults"].get("unit", "none")
    rows = []
    for target in p["targets"]:
        query = target["expr"].replace("$__rate_interval", "15s")
        for row in ask(base, "query_range", query=query, start=span[0], end=span[1], step=1):
            rows.append((legend(target.get("legendFormat"), row["metric"]), row["values"]))
    body = draw_stat(rows, unit, w, h) if p["type"] == "stat" else draw_lines(rows, unit, w, h, span)
    out = [f'<g transform="translate({place["x"] * COLUMN + GAP},{place["y"] * ROW + GAP + 30})">', f'<rect width="{w}" height="{h}" rx="4" fill="#fff" stroke="#c8ced6"/>']
    out.append(text(10, 19, p["title"], 13 if len(p["title"]) * 8 < w else 11, 'font-weight="600"'))
    return "\n".join(out + body + ["</g>"]), bool(rows)


def main(board, base, seconds, out):
    with open(board, encoding="utf-8") as f:
        board = json.load(f)
    end = time.time()
    span = (end - float(seconds), end)
    drawn = [panel(p, base, span) for p in board["panels"]]
    height = max(p["gridPos"]["y"] + p["gridPos"]["h"] for p in board["panels"]) * ROW + 40
    with open(out, "w", encoding="utf-8") as f:
        f.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{24 * COLUMN + GAP}" height="{height}" font-family="DejaVu Sans, sans-serif" fill="#1b1f24">\n')
        f.write(f'<rect width="100%" height="100%" fill="#f2f4f7"/>\n{text(GAP + 2, 26, board["title"], 18, chr(102) + "ont-weight=" + chr(34) + "600" + chr(34))}\n')
        f.write("\n".join(svg for svg, _ in drawn) + "\n</svg>\n")
    empty = [p["title"] for p, (_, some) in zip(board["panels"], drawn) if not some]
    print(f"written: {out}; {len(drawn) - len(empty)} of {len(drawn)} panels have an answer; without one: {empty}")


main(*sys.argv[1:])
