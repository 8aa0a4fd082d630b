"""The bench: simulated runs, their measures, figures of papers, and what weft itself costs.

    cli             the commands: `weft sim`, `sweep`, `analyze`, `demo`, `reproduce` and `bench`
    runs            one simulated run: the scenario, the workload, attacks, the figures that are counted
    sweep           many simulated runs: every combination of a grid of scenarios, over several seeds
    spark           the analysis of traces, simulated or live, on Apache Spark
    report          HTML pages of an analysis, of a sweep and of a live network
    papers          figures of papers, measured again
    perf            what weft costs: benchmarks, some of them beside other libraries
    scenarios       examples of scenarios and of a sweep, as TOML files

This package stands on `pubsub`, `overlays` and `peer`, and none of them imports it: a program that only publishes and subscribes
need not load it.
"""

if __name__ != "libweft.bench":
    raise ImportError("import libweft.bench, not bench: the second name would load every module twice")
