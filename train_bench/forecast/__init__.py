"""Forecast of time to train: samples to the target from reference convergence points, samples per second from a probe,
a log or published results, combined by simulation. Reads third-party files; numpy only."""
