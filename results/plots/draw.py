"""Draws maps.svg, the plot of the README, from the medians of one run: python3 results/plots/draw.py"""

import csv
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN = "2026-11-27-xeon-2-cores"
MACHINE = "Intel Xeon (family 6, model 167), one thread on two virtual cores, 2026-11-27"
# Tables in medians.csv, their names in the plot, and whether they are ours.
TABLES = [
    ("relativist flat", "FlatMap", True),
    ("relativist", "HashMap", True),
    ("papaya", "papaya", False),
    ("scc::HashIndex", "scc::HashIndex", False),
    ("scc::HashMap", "scc::HashMap", False),
    ("dashmap", "dashmap", False),
]
# Workload and detail in medians.csv, and the title of the panel.
PANELS = [
    ("hit", "", "hits"),
    ("dependent", "", "dependent lookups"),
    ("miss", "", "misses"),
    ("matrix", "uniform 50 % updates", "50 % updates"),
]
SIZES = [(1 << 16, "2^16 entries"), (1 << 20, "2^20 entries")]
# The lighter colour is that of the first size.
OURS = ("#96c8f0", "#1e68ac")
OTHERS = ("#c9cdd4", "#828995")
BAR, GAP, NAMES, PANEL, LABEL, TOP = 11, 8, 105, 190, 34, 48
# Bars are cut at this many times the time of FlatMap.
CUT = 6


def medians():
    with open(HERE.parent / RUN / "medians.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "u64" and row["threads"] == "1"]
    rows = [row for row in rows if row["run"] in ("lookups", "updates")]
    return {(row["workload"], row["detail"], int(row["entries"]), row["table"]): float(row["median"]) for row in rows}


def panel(times, x, work, detail, title):
    yield f'<text x="{x}" y="{TOP - 10}" font-weight="bold">{title}, ns</text>'
    ours = max(times[work, detail, size, TABLES[0][0]] for size, _ in SIZES)
    longest = min(CUT * ours, max(times[work, detail, size, name] for size, _ in SIZES for name, _, _ in TABLES))
    for row, (name, _, is_ours) in enumerate(TABLES):
        for bar, (size, _) in enumerate(SIZES):
            time = times[work, detail, size, name]
            y = TOP + row * (2 * BAR + GAP) + bar * BAR
            width = min(time, longest) / longest * (PANEL - LABEL - 12)
            cut = " …" if time > longest else ""
            yield f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR - 1}" fill="{(OURS if is_ours else OTHERS)[bar]}"/>'
            yield f'<text x="{x + width + 3:.1f}" y="{y + BAR - 2}" font-size="10">{time:.0f}{cut}</text>'


def picture(times):
    width, height = NAMES + len(PANELS) * PANEL, TOP + len(TABLES) * (2 * BAR + GAP) + 34
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#222">'
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield f'<text x="{NAMES}" y="16">Nanoseconds per operation and thread, u64 to u64: shorter is better. Light: {SIZES[0][1]}; dark: {SIZES[1][1]}.</text>'
    for row, (_, name, _) in enumerate(TABLES):
        yield f'<text x="{NAMES - 8}" y="{TOP + row * (2 * BAR + GAP) + BAR + 3}" text-anchor="end">{name}</text>'
    for column, (work, detail, title) in enumerate(PANELS):
        yield from panel(times, NAMES + column * PANEL, work, detail, title)
    yield f'<text x="{NAMES}" y="{height - 12}" font-size="10">{MACHINE}. Medians; a guard or lock per operation.</text>'
    yield "</svg>"


if __name__ == "__main__":
    (HERE / "maps.svg").write_text("\n".join(picture(medians())) + "\n")
