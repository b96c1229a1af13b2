"""Hit rates of eviction policies on block traces, beside the best that knowing the future allows.

    python -m benchmarks.hit_rate [--data DIR] [--out DIR] [--policies lru,cost,program] [--traces chats,scans]

Cache only: each request is matched and inserted as it arrives. A size is a share of all blocks of the trace. The
clock reads seconds where a trace has arrivals, else it counts requests; policies are told the lengths of answers where
a trace has them, as an engine tells them.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks.traces import MIXES, SYNTHETIC, Recorded, applications, mooncake, sessions
from palmette.radix_cache.belady import belady_hits, infinite_hits, policy_hits
from palmette.radix_cache.eviction import eviction_policy
from palmette.runtime.roofline.plot import Chart, Series, svg

SHARES = (0.01, 0.05, 0.1, 0.2)
REAL = "mooncake/conversation_trace.jsonl"
REQUESTS = 6000
SEED = 1


def traces(data: Path) -> dict[str, Recorded]:
    """The real trace where there is one, whole and in halves, and the seeded ones."""
    found, real = dict[str, Recorded](), data / REAL
    if real.exists():
        whole = mooncake(real)
        half = len(whole.trace) // 2
        found = {
            "conversation": whole,
            "its first half": whole.part(0, half),
            "its second half": whole.part(half, len(whole.trace)),
            "without answers": Recorded(whole.trace, whole.arrivals),
        }
    found |= {name: Recorded(make(REQUESTS, SEED)) for name, make in SYNTHETIC.items()}
    found["applications"] = applications(REQUESTS, SEED)
    return found | {name: sessions(REQUESTS, SEED, *mix) for name, mix in MIXES.items()}


def study(name: str, recorded: Recorded, policies: list[str]) -> Chart:
    """Prints a table in Markdown; returns the curves."""
    trace = recorded.trace
    blocks = sum(map(len, trace))
    infinite = infinite_hits(trace) / blocks
    curves: dict[str, list[tuple[float, float]]] = {policy: [] for policy in [*policies, "Belady"]}
    print(f"\n{name}: {len(trace)} requests, {blocks} blocks, infinite cache {infinite:.4f}\n")
    print(f"| size | {' | '.join(policies)} | Belady | gap closed by {policies[-1]} | CPU ms a request |")
    print("|---" * (len(policies) + 4) + "|")
    for share in SHARES:
        capacity = int(share * blocks)
        rates = []
        for policy in policies:
            start = time.process_time()
            rates.append(
                policy_hits(trace, capacity, eviction_policy(policy), recorded.arrivals, recorded.answers) / blocks
            )
            cost = (time.process_time() - start) / len(trace) * 1e3
            curves[policy].append((share, rates[-1]))
        best = belady_hits(trace, capacity) / blocks
        curves["Belady"].append((share, best))
        lru = rates[policies.index("lru")] if "lru" in policies else 0.0
        closed = f"{(rates[-1] - lru) / (best - lru):.0%}" if best - lru > 0.001 else "–"
        cells = " | ".join(f"{rate:.4f}" for rate in rates)
        print(f"| {share:.0%} | {cells} | {best:.4f} | {closed} | {cost:.2f} |", flush=True)
    series = [Series(each, points, dashed=each == "Belady") for each, points in curves.items()]
    return Chart(name, "cache, share of all blocks", "hit rate", series)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, help="write hit-rate.svg here")
    parser.add_argument("--policies", default="lru,lfu,slru,cost,program", help="the last is compared with lru")
    parser.add_argument("--traces", help="names, with commas between them; all where left out")
    options = parser.parse_args()
    policies, chosen = options.policies.split(","), options.traces.split(",") if options.traces else []
    every = {name: each for name, each in traces(options.data).items() if not chosen or name in chosen}
    charts = [study(name, recorded, policies) for name, recorded in every.items()]
    if options.out is not None:
        (options.out / "hit-rate.svg").write_text(svg(charts, "Hit rates by cache size"), encoding="utf-8")


if __name__ == "__main__":
    main()
