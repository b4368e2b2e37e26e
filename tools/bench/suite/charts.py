"""Horizontal bar charts as SVG, small enough to need no library."""
from xml.sax.saxutils import escape

COLOURS = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb"]
WIDTH, LABELS, BAR, GAP, HEAD = 760, 190, 18, 14, 46


def bar_chart(title, unit, groups):
    """`groups`: [(name, [(label, median, low, high), ...]), ...]; the line over a bar's end is its spread."""
    largest = max(bar[3] for _, bars in groups for bar in bars) or 1
    scale = (WIDTH - LABELS - 110) / largest
    names = []
    for _, bars in groups:
        names += [bar[0] for bar in bars if bar[0] not in names]
    parts, y = [], HEAD
    for name, bars in groups:
        parts.append(f'<text x="8" y="{y + 4}" font-weight="bold">{escape(name)}</text>')
        y += 12
        for label, median, low, high in bars:
            middle = y + BAR / 2
            colour = COLOURS[names.index(label) % len(COLOURS)]
            parts.append(f'<text x="{LABELS - 6}" y="{middle + 4}" text-anchor="end">{escape(label)}</text>')
            parts.append(f'<rect x="{LABELS}" y="{y}" width="{median * scale:.1f}" height="{BAR - 3}" fill="{colour}"/>')
            parts.append(f'<path d="M{LABELS + low * scale:.1f} {middle - 1:.1f}H{LABELS + high * scale:.1f}" '
                         'stroke="#222" stroke-width="1.5"/>')
            parts.append(f'<text x="{LABELS + high * scale + 6:.1f}" y="{middle + 4}">{_number(median)} {escape(unit)}</text>')
            y += BAR
        y += GAP + 8
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" font-family="sans-serif" '
            f'font-size="12"><rect width="{WIDTH}" height="{y}" fill="white"/>'
            f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(title)}</text>')
    return head + "".join(parts) + "</svg>\n"


def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
