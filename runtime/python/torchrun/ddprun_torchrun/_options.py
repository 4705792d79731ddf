# SPDX-License-Identifier: BSD-3-Clause
"""Turns torch's LaunchConfig into the options of ddprun.LaunchConfig. Touches nothing."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Union

# Options of torch.distributed.run whose PET_ variables it has read already; ddprun would read them a second time.
_TORCHS_VARIABLES = (
    "NNODES NPROC_PER_NODE RDZV_BACKEND RDZV_ENDPOINT RDZV_ID RDZV_CONF STANDALONE MAX_RESTARTS MONITOR_INTERVAL "
    "START_METHOD EVENT_LOG_HANDLER ROLE MODULE NO_PYTHON RUN_PATH LOG_DIR REDIRECTS TEE LOG_LINE_PREFIX_TEMPLATE "
    "LOCAL_RANKS_FILTER DUPLICATE_STDOUT_FILTERS DUPLICATE_STDERR_FILTERS NODE_RANK MASTER_ADDR MASTER_PORT LOCAL_ADDR "
    "SIGNALS_TO_HANDLE SHUTDOWN_TIMEOUT VIRTUAL_LOCAL_RANK"
).split()

# Fields that have the same name and values in both. Older releases of torch lack some.
_SAME = (
    "nproc_per_node role rdzv_backend rdzv_endpoint local_addr max_restarts monitor_interval log_line_prefix_template "
    "event_log_handler signals_to_handle shutdown_timeout virtual_local_rank"
).split()


class NotHere(Exception):
    """ddprun cannot do what is asked for; the text says why, as the end of "since ...". Nothing was started."""


def options_of(config: Any) -> Dict[str, Any]:
    """Returns the fields of ddprun's LaunchConfig for torch's. Raises NotHere."""
    _refuse_plugins(config)
    options = {name: getattr(config, name, None) for name in _SAME}
    options["nnodes"] = f"{config.min_nodes}:{config.max_nodes}"
    options["rdzv_id"] = config.run_id
    settings = dict(config.rdzv_configs)
    if config.rdzv_backend == "c10d" or config.max_nodes == 1:
        settings.pop("timeout", None)  # LaunchConfig always sets it; only a static job waits for other nodes that long
    for name, value in settings.items():
        if not isinstance(value, (str, int, float)) or any(mark in f"{name}{value}" for mark in ",="):
            raise NotHere(f"the rendezvous setting {name}={value!r} cannot be written on a command line")
    options["rdzv_conf"] = settings
    numa = getattr(config, "numa_options", None)
    options["numa_binding"] = numa and numa.affinity_mode.value
    for name in ("duplicate_stdout_filters", "duplicate_stderr_filters"):
        options[name] = [word.replace(",", ",,") for word in getattr(config, name, None) or []]
    options.update(_log_options(config.logs_specs))
    return {name: value for name, value in options.items() if value not in (None, "", [], {})}


def environment_of(inherited: Mapping[str, str]) -> Dict[str, str]:
    """Returns the environment for ddprun: without what torch has read of it already."""
    gone = {f"PET_{name}" for name in _TORCHS_VARIABLES}
    return {name: value for name, value in inherited.items() if name not in gone}


def _refuse_plugins(config: Any) -> None:
    if config.rdzv_backend not in ("static", "c10d"):
        raise NotHere(f"ddprun has no rendezvous backend '{config.rdzv_backend}'")
    handler = getattr(config, "event_log_handler", "null")
    if handler not in ("null", "console", "dynamic_rendezvous"):
        raise NotHere(f"the event log handler '{handler}' is a Python plug-in")
    if config.metrics_cfg:
        raise NotHere("it has a metrics_cfg, for metrics of torch's own agent")


def _log_options(logs: Any) -> Dict[str, Any]:
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs

    if type(logs) is not DefaultLogsSpecs:
        raise NotHere(f"its logs_specs are of {type(logs).__name__}, a Python class")
    return {
        "log_dir": logs.root_log_dir,
        "redirects": _streams(logs._redirects),
        "tee": _streams(logs._tee),
        "local_ranks_filter": sorted(logs._local_ranks_filter or ()),
    }


def _streams(choice: Union[int, Dict[int, int]]) -> str:
    """Returns torch's Std for all ranks, or by local rank, as the command line has it."""
    if isinstance(choice, dict):
        return ",".join(f"{rank}:{int(streams)}" for rank, streams in choice.items())
    return str(int(choice))
