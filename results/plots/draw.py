"""Draws maps.svg and caches.svg, the plots of the READMEs, from medians: python3 results/plots/draw.py"""

import csv
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Sizes in entries, and their names.
SIZES = [(1 << 16, "2^16 entries"), (1 << 20, "2^20 entries")]
# The lighter colour is that of the first size.
OURS = ("#96c8f0", "#1e68ac")
OTHERS = ("#c9cdd4", "#828995")
BAR, GAP, NAMES, PANEL, LABEL, TOP = 11, 8, 105, 190, 34, 48


@dataclass
class Picture:
    file: str
    run: str
    threads: str
    title: str
    footer: str
    # Names in medians.csv, and in the plot. The first `ours` are ours.
    tables: list[tuple[str, str]]
    ours: int
    # Workload and detail in medians.csv, and the title of the panel.
    panels: list[tuple[str, str, str]]
    # Bars are cut at this many times the longest of the first table.
    cut: float


PICTURES = [
    Picture(
        file="maps.svg",
        run="2026-11-29-xeon-2-cores",
        threads="1",
        title="Nanoseconds per operation and thread, u64 to u64: shorter is better.",
        footer="Intel Xeon (Emerald Rapids), one thread on two virtual cores, 2026-11-29. Medians; a guard or lock per operation.",
        tables=[
            ("relativist flat", "FlatMap"),
            ("relativist", "HashMap"),
            ("papaya", "papaya"),
            ("scc::HashIndex", "scc::HashIndex"),
            ("scc::HashMap", "scc::HashMap"),
            ("dashmap", "dashmap"),
        ],
        ours=2,
        panels=[
            ("hit", "", "hits"),
            ("dependent", "", "dependent lookups"),
            ("miss", "", "misses"),
            ("matrix", "uniform, 50 % updates", "50 % updates"),
        ],
        cut=6,
    ),
    Picture(
        file="caches.svg",
        run="2026-11-29-xeon-2-cores",
        threads="2",
        title="Nanoseconds per operation, two threads, u64 to u64: shorter is better.",
        footer="Intel Xeon (Emerald Rapids), two threads on two virtual cores, 2026-11-29. Medians.",
        tables=[("relativist", "Cache"), ("quick_cache", "quick_cache"), ("foyer", "foyer"), ("moka", "moka")],
        ours=1,
        panels=[
            ("hit", "", "hits"),
            ("miss", "", "misses"),
            ("get-or-insert", "", "lookups, 20 % insert"),
            ("evict", "", "insertions"),
        ],
        cut=4,
    ),
]


def medians(picture):
    with open(HERE.parent / picture.run / "medians.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["threads"] == picture.threads]
    rows = [row for row in rows if row["run"] == "caches" or row["run"] in ("lookups", "updates") and row["kind"] == "u64"]
    return {(row["workload"], row["detail"], int(row["entries"]), row["table"]): float(row["median"]) for row in rows}


def panel(picture, times, x, work, detail, title):
    yield f'<text x="{x}" y="{TOP - 10}" font-weight="bold">{title}, ns</text>'
    of = lambda table, size: times[work, detail, size, table]
    ours = max(of(picture.tables[0][0], size) for size, _ in SIZES)
    longest = min(picture.cut * ours, max(of(table, size) for size, _ in SIZES for table, _ in picture.tables))
    for row, (table, _) in enumerate(picture.tables):
        for bar, (size, _) in enumerate(SIZES):
            time = of(table, size)
            y = TOP + row * (2 * BAR + GAP) + bar * BAR
            width = min(time, longest) / longest * (PANEL - LABEL - 12)
            cut = " …" if time > longest else ""
            colour = (OURS if row < picture.ours else OTHERS)[bar]
            yield f'<rect x="{x}" y="{y}" width="{width:.1f}" height="{BAR - 1}" fill="{colour}"/>'
            yield f'<text x="{x + width + 3:.1f}" y="{y + BAR - 2}" font-size="10">{time:.0f}{cut}</text>'


def svg(picture):
    times = medians(picture)
    width, height = NAMES + len(picture.panels) * PANEL, TOP + len(picture.tables) * (2 * BAR + GAP) + 34
    yield f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12" fill="#222">'
    yield f'<rect width="{width}" height="{height}" fill="white"/>'
    yield f'<text x="{NAMES}" y="16">{picture.title} Light: {SIZES[0][1]}; dark: {SIZES[1][1]}.</text>'
    for row, (_, name) in enumerate(picture.tables):
        yield f'<text x="{NAMES - 8}" y="{TOP + row * (2 * BAR + GAP) + BAR + 3}" text-anchor="end">{name}</text>'
    for column, (work, detail, title) in enumerate(picture.panels):
        yield from panel(picture, times, NAMES + column * PANEL, work, detail, title)
    yield f'<text x="{NAMES}" y="{height - 12}" font-size="10">{picture.footer}</text>'
    yield "</svg>"


if __name__ == "__main__":
    for picture in PICTURES:
        (HERE / picture.file).write_text("\n".join(svg(picture)) + "\n")
