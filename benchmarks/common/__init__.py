"""What the benchmarks share: a stopwatch, a result, a fresh process, and the machine they ran on."""
