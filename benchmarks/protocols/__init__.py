"""How suites are measured: functions from a suite to its jobs, named in suite files as ``module.function``."""
