"""The shared parts of all experiments: settings, records, measurements, claims, statistics, style and commands."""
