"""A line chart as SVG, by hand: categories along the bottom, a logarithmic scale up the side."""
import math

WIDTH, HEIGHT = 780, 420
LEFT, RIGHT, TOP, BOTTOM = 100, 170, 50, 60
COLOURS = ["#7f7f7f", "#bcbd22", "#9467bd", "#17becf", "#ff7f0e", "#d62728", "#2ca02c"]


def write(path, title, categories, lines, side, below):
    """`lines`: {name: [value of each category]}."""
    values = [value for line in lines.values() for value in line if value > 0]
    low = math.floor(math.log10(min(values)))
    high = max(math.ceil(math.log10(max(values))), low + 1)
    inner_width, inner_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(index):
        return LEFT + inner_width * index / max(len(categories) - 1, 1)

    def up(value):
        return TOP + inner_height * (1 - (math.log10(value) - low) / (high - low))

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="28" font-size="15">{title}: {side}</text>']
    for power in range(low, high + 1):
        y = up(10 ** power)
        out.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" '
                   'stroke="#dddddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{10 ** power:,}</text>')
    for index, name in enumerate(categories):
        out.append(f'<text x="{across(index):.1f}" y="{HEIGHT - BOTTOM + 20}" '
                   f'text-anchor="middle">{name}</text>')
    out.append(f'<text x="{LEFT + inner_width / 2:.1f}" y="{HEIGHT - 14}" '
               f'text-anchor="middle">{below}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{across(i):.1f},{up(v):.1f}" for i, v in enumerate(line) if v > 0)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" '
                   'stroke-width="2"/>')
        y = TOP + 18 * number + 10
        out.append(f'<line x1="{WIDTH - RIGHT + 16}" y1="{y}" x2="{WIDTH - RIGHT + 40}" y2="{y}" '
                   f'stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - RIGHT + 46}" y="{y + 4}">{name}</text>')
    out.append("</svg>")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out) + "\n")
