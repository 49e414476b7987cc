#!/usr/bin/env python3
"""What the launches of a captured graph waited for: reads what VLLM_GPU_TIMELINE wrote.

  tools/gpu_timeline.py FILE [--replay N]

A line a launch: its blocks, on how many multiprocessors they ran and how many at most on one; then,
in us from the end of the launch before it: when its last block began, when the first, the middle
and the last block passed their wait for that launch, and when the first, the middle and the last
ended. The last figure is how long the launch held up the graph. At the end, sums by kernel.
"""
import argparse
import collections

BEGAN, WAITED, ENDED = range(3)


def read(path):
    names, events = {}, []
    with open(path) as lines:
        for line in lines:
            fields = line.split()
            if fields[0] == "kernel":
                names[int(fields[1])] = fields[2]
            else:
                events.append(tuple(map(int, fields)))
    events.sort(key=lambda e: e[1])
    return names, events


def launches(names, events, replay):
    """Of one replay: a block that begins anew belongs to the next one."""
    turn, found = {}, {}
    for grid, time, block, unit, kind, kernel in events:
        if kind == BEGAN:
            turn[grid, block] = turn.get((grid, block), -1) + 1
        if turn.get((grid, block), 0) != replay:
            continue
        launch = found.setdefault(grid, {"name": "?", "units": {}, "times": ({}, {}, {})})
        launch["times"][kind][block] = time
        if kind == BEGAN:
            launch["name"] = names.get(kernel, str(kernel))
            launch["units"][block] = unit
    whole = [l for l in found.values() if l["times"][BEGAN] and l["times"][ENDED]]
    return sorted(whole, key=lambda l: min(l["times"][BEGAN].values()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--replay", type=int, default=2, help="which of those written down")
    options = parser.parse_args()
    found = launches(*read(options.file), options.replay)
    if not found:
        raise SystemExit(f"{options.file} has no launch of replay {options.replay}")

    print(f"{'kernel':44} {'blocks':>6} {'units':>5} {'most':>4} | {'begun':>7} |"
          f" {'waited':>7} {'':>7} {'':>7} | {'ended':>7} {'':>7} {'':>7}")
    sums, before = collections.OrderedDict(), None
    for launch in found:
        began, waited, ended = launch["times"]
        base = before if before is not None else min(began.values())

        def three(times):
            times = sorted(t - base for t in times.values()) or [0]
            return (times[0] / 1e3, times[len(times) // 2] / 1e3, times[-1] / 1e3)

        held = three(ended)[2]
        on = collections.Counter(launch["units"].values())
        print("{:44} {:6} {:5} {:4} | {:7.2f} | {:7.2f} {:7.2f} {:7.2f} | {:7.2f} {:7.2f} {:7.2f}".format(
            launch["name"][:44], len(began), len(on), max(on.values()), three(began)[2],
            *three(waited or began), *three(ended)))
        sums.setdefault((launch["name"], len(began)), []).append(held)
        before = max(ended.values())
    print()
    for (name, blocks), held in sums.items():
        print(f"{name:44} {blocks:6} x {len(held):4}: middle {sorted(held)[len(held) // 2]:8.2f} us, together {sum(held):9.1f}")
    print(f"all {sum(map(sum, sums.values())):.1f} us")


if __name__ == "__main__":
    main()
