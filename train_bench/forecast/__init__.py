"""How long training to the target will take: samples to the target from reference convergence points, samples per
second from a probe, a log or published results, put together by simulation. Reads what others write; numpy only."""
