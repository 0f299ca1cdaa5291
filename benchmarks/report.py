#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a table (Markdown) and, where gnuplot is, a plot (SVG) of what compare.py has measured.

usage: report.py FOLDER

FOLDER has times.json, instructions.json, or both; table.md and ratios.svg are written to it.
"""
import json
import pathlib
import random
import shutil
import statistics
import subprocess
import sys

RATES = {'sends', 'writes', 'connections', 'connections, epoll loop'}


def interval(values):
    """Where the median lies, with 95 %: bootstrapped, the same in each run."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(2000))
    return medians[49], medians[1949]


def ratios(spans, other='c'):
    """Ours to the other, of each start."""
    return [a / b for a, b in zip(spans['cpp'], spans[other])]


class Measured:
    """One file of results, by device and case."""

    def __init__(self, file):
        found = json.loads(file.read_text()) if file.exists() else {'about': {}, 'results': []}
        self.about = found['about']
        self.results = {(result['device'], result['case']): result for result in found['results']}

    def cells(self, key, other, show):
        """C's, ours, the ratio and its spread."""
        result = self.results.get(key)
        if not result or other not in result['spans']:
            return ['', '', '', '']
        spans = result['spans']
        values = ratios(spans, other)
        if show is time_or_rate and key[1] in RATES:
            values = [1 / value for value in values]
        low, high = interval(values)
        return [show(key[1], statistics.median(spans[other])), show(key[1], statistics.median(spans['cpp'])),
                f'**{statistics.median(values):.3f}**', f'{low:.3f} to {high:.3f}']


def time_or_rate(case, nanoseconds):
    if case not in RATES:
        return f'{nanoseconds / 1000:.1f} µs'
    rate = 1e9 / nanoseconds
    return f'{rate:.0f} /s' if rate < 10000 else f'{rate / 1000:.1f} k/s'


def thousands(_, instructions):
    return f'{instructions / 1000:.1f} k'


def row(cells):
    return '| ' + ' | '.join(cells) + ' |'


def table(times, instructions):
    about = {**times.about, **instructions.about}
    keys = list({**times.results, **instructions.results})
    lines = [
        ', '.join(f'{name} {value}' for name, value in about.items()) + '.',
        '',
        'Ratio: ours to C, the median of the starts of the programs, and the interval in which it lies with 95 %',
        '(bootstrap). Of times and of instructions 1.02 is 2 % more than C; of rates (`/s`) 0.98 is 2 % less. Instructions',
        'are those of the whole guest, its kernel included, for one round trip, message or connection: both ends.',
    ]
    for other, title in (('c', 'C'), ('c_blocking', 'blocking C')):
        rows = [key for key in keys if any(other in measured.results.get(key, {'spans': ()})['spans']
                                           for measured in (times, instructions))]
        if other == 'c_blocking' and rows:
            lines += ['', 'The same beside a C that blocks in `ibv_get_cq_event`, knows no deadline and cannot be stopped:']
        lines += ['', row(['device', 'what', f'{title}: time', 'rdmacpp', 'ratio', '95 %',
                           f'{title}: instructions', 'rdmacpp', 'ratio', '95 %']), row(['---'] * 10)] if rows else []
        for key in rows:
            lines.append(row([*key, *times.cells(key, other, time_or_rate),
                              *instructions.cells(key, other, thousands)]))
    counted = [(*key, result['allocations']) for key, result in instructions.results.items()
               if any(result.get('allocations', {}).values()) or 'epoll loop' in key[1]]
    if counted:
        lines += ['', 'Calls of malloc, calloc and realloc for one, by the C libraries below as well, where there are any:', '',
                  row(['device', 'what', 'C', 'rdmacpp']), row(['---'] * 4)]
    lines += [row([device, case, f'{made["c"]:g}', f'{made["cpp"]:g}']) for device, case, made in counted]
    phased = {key: result for key, result in instructions.results.items() if result['phases']['c']}
    if phased:
        lines += ['', 'The phases of connecting, as of cmtime: instructions for each connection, both ends.', '',
                  row(['device', 'phase', 'C', 'rdmacpp', 'ratio']), row(['---'] * 5)]
    for (device, case), result in phased.items():
        for phase in result['phases']['c']:
            c, ours = (statistics.median(result['phases'][side][phase]) for side in ('c', 'cpp'))
            lines.append(row([device, phase.replace('_', ' '), thousands(case, c), thousands(case, ours),
                              f'{ours / c:.3f}']))
    return '\n'.join(lines) + '\n'


def plot(times, instructions, into):
    """Of times and instructions alike, so that less is always better: a rate is shown as the time that it is."""
    keys = list({**times.results, **instructions.results})
    blocks = []
    for measured, shift in ((times, -0.15), (instructions, 0.15)):
        rows = []
        for place, key in enumerate(keys):
            if key not in measured.results:
                continue
            values = ratios(measured.results[key]['spans'])
            low, high = interval(values)
            rows.append(f'{place + shift} {statistics.median(values):.4f} {low:.4f} {high:.4f}')
        blocks.append(rows)
    names = ', '.join(f'"{device}: {case}" {place}' for place, (device, case) in enumerate(keys))
    script = '\n'.join([
        f'set terminal svg size 800,{110 + 24 * len(keys)} font "sans-serif,12" background "white"',
        f'set output "{into}"',
        'set title "rdmacpp to C, medians with their 95 % intervals"',
        'set xlabel "ratio: 1 is as in C, more is slower"',
        f'set yrange [{len(keys) - 0.4}:-0.6]',
        f'set ytics ({names})',
        'set xrange [0.94:1.1]',
        'set grid xtics',
        'set key below',
        'set arrow from 1, graph 0 to 1, graph 1 nohead linecolor "#888888" linewidth 2',
        '$times << END', *blocks[0], 'END', '$instructions << END', *blocks[1], 'END',
        'plot ' + ', '.join(
            f'${name} using 2:1:3:4 with xerrorbars pointtype {point} pointsize 0.6 linewidth 2 linecolor "{color}" '
            f'title "{name}"'
            for name, rows, point, color in (('times', blocks[0], 7, '#7799bb'), ('instructions', blocks[1], 5, '#113355'))
            if rows),
    ])
    subprocess.run(['gnuplot'], input=script, text=True, check=True)


def main():
    folder = pathlib.Path(sys.argv[1])
    times, instructions = Measured(folder / 'times.json'), Measured(folder / 'instructions.json')
    text = table(times, instructions)
    (folder / 'table.md').write_text(text)
    print(text, end='')
    if shutil.which('gnuplot'):
        plot(times, instructions, folder / 'ratios.svg')
    else:
        print('no plot: gnuplot is not installed (Debian: gnuplot-nox)', file=sys.stderr)
    return 0


if __name__ == '__main__':
    sys.exit(main())
