"""Check the keys for the processes of a run, and start `jax.distributed`."""

import socket
import time
from collections.abc import Sequence

import jax
from omegaconf import DictConfig

from jaxattn.study.configuration import composition

_CLUSTERS = ("slurm", "ompi", "mpi4py", "k8s")
# Seconds that a process waits for the first one to start.
_PATIENCE = 300


def join(config: DictConfig) -> None:
    """Join the processes of a run before JAX looks for its devices; a single process does nothing.

    Raises:
        UsageError: keys that are missing, out of range or contradict each other, or processes that do not meet.
    """
    asked = config.processes
    check(config)
    if (asked.count == 1 and asked.detect is None) or jax.distributed.is_initialized():
        return
    # That service would swallow the SIGTERM by which a user or a cluster ends a run.
    jax.config.update("jax_enable_preemption_service", False)
    if asked.index:
        _reach(asked.coordinator)
    given = {"coordinator_address": asked.coordinator, "num_processes": asked.count, "process_id": asked.index}
    try:
        if asked.detect is None:
            jax.distributed.initialize(**given, cluster_detection_method="deactivate")
        else:
            jax.distributed.initialize(cluster_detection_method=asked.detect)
    except KeyError as error:
        raise composition.UsageError(
            f"processes.detect: expected to run inside {asked.detect}, found its variable {error} not set"
        ) from error
    except (RuntimeError, ValueError, TypeError) as error:
        raise composition.UsageError(f"processes: the processes of this run did not meet: {error}") from error


def _reach(coordinator: str) -> None:
    """Wait until the first process listens. Otherwise JAX would end this process with a traceback."""
    host, _, port = coordinator.rpartition(":")
    for attempt in range(_PATIENCE):
        try:
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        except OSError as error:
            if attempt == _PATIENCE - 1 or isinstance(error, socket.gaierror):
                raise composition.UsageError(
                    f"processes.coordinator: no process with index 0 listens at {coordinator}: {error}"
                ) from error
            time.sleep(1.0)
        else:
            return


def alike(configs: Sequence[DictConfig]) -> DictConfig:
    """Return the first configuration of a sweep, after checking that all have the same processes.

    Raises:
        UsageError: they differ.
    """
    if any(config.processes != configs[0].processes for config in configs):
        raise composition.UsageError("processes: expected the same in all runs of a sweep, found several")
    return configs[0]


def check(config: DictConfig, launched: bool = False) -> None:
    """Check the keys for the processes of a run in this process, or in one that a launcher starts.

    Raises:
        UsageError: a key that is missing, out of range, or contradicts another.
    """
    asked = config.processes
    if asked.detect is not None:
        if asked.detect not in _CLUSTERS:
            raise composition.UsageError(
                f"processes.detect: expected one of {', '.join(_CLUSTERS)}, found {asked.detect}"
            )
        if asked.count != 1 or asked.index is not None or asked.coordinator is not None:
            raise composition.UsageError(
                "processes.detect: the cluster says count, index and coordinator; expected none of them"
            )
        return
    if asked.count < 1:
        raise composition.UsageError(f"processes.count: expected at least 1, found {asked.count}")
    if asked.index is not None and not 0 <= asked.index < asked.count:
        raise composition.UsageError(
            f"processes.index: expected one of 0 to {asked.count - 1}, as processes.count={asked.count}, "
            f"found {asked.index}"
        )
    if asked.count == 1:
        if asked.coordinator is not None:
            raise composition.UsageError(
                f"processes.coordinator: expected none with processes.count=1, found {asked.coordinator}"
            )
        return
    if launched:
        raise composition.UsageError(
            f"processes.count: expected 1 with a launcher, which may ask for processes.detect, found {asked.count}"
        )
    if asked.index is None:
        raise composition.UsageError(f"processes.index: expected one of 0 to {asked.count - 1}, found none")
    host, _, port = (asked.coordinator or "").rpartition(":")
    if not (host and port.isdigit()):
        raise composition.UsageError(
            "processes.coordinator: expected host:port, where the process with index 0 listens, "
            f"found {asked.coordinator or 'none'}"
        )
