"""Sampler configurations that reach every branch on a small database."""

from __future__ import annotations

from hypothesis import strategies as st

from quartet.config import BRANCHES, SamplingConfig


def configs() -> st.SearchStrategy[SamplingConfig]:
    """Budgets, fan-outs and walks both below and above what a small database has to offer."""
    few = st.sampled_from([1, 2, 3, 5, 50])
    return st.builds(
        SamplingConfig,
        local_sampler=st.sampled_from(["walk", "walk", "bfs", "uniform"]),
        num_walks=st.sampled_from([1, 2, 7, 30]),
        walk_length=st.sampled_from([1, 2, 3, 8]),
        restart_prob=st.sampled_from([0.15, 0.0, 0.5, 0.95]),
        max_recent=st.sampled_from([1, 2, 3, 5, 50, None]),
        truncation=st.sampled_from(["recent", "random"]),
        local_budget=st.sampled_from([2, 3, 5, 9, 40, 300]),
        branches=st.sampled_from([BRANCHES] * 4 + [("feature",), ("topology", "collab"), ("temporal",)]),
        temporal_budget=st.sampled_from([1, 2, 3, 7, 40, 300]),
        lookback_days=st.sampled_from([1, 2, 15, 365, 10**6]),
        collab_budget=few,
        collab_hops=st.sampled_from([2, 4]),
        first_fanout=few,
        second_fanout=few,
        fallback=st.sampled_from(["visible", "visible", "null"]),
        time_rule=st.sampled_from(["<=", "<"]),
        rng_seed=st.integers(0, 2**32),
    )
