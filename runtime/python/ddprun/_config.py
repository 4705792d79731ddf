# SPDX-License-Identifier: BSD-3-Clause
"""The options of `launch`: those of ddprun's command line, under their names there."""
import dataclasses
from typing import Any, List, Mapping, Optional, Sequence, Union


@dataclasses.dataclass
class LaunchConfig:
    """Options for `launch`, one for each of ddprun's that makes sense for a function.

    `ddprun --help` explains each; its name there has dashes. None (or False) leaves an option out, so that its variable
    PET_<NAME> or ddprun's default counts. Times are in seconds. Where the command line takes a list with commas, a
    sequence will do, and for rdzv_conf a mapping. ddprun checks the values: `launch` raises LaunchError with what it
    says.
    """

    # Workers
    nproc_per_node: Union[None, int, str] = None
    gpus: Union[None, str, Sequence[int]] = None
    virtual_local_rank: bool = False
    numa_binding: Optional[str] = None
    role: Optional[str] = None
    # Program
    preload: Union[None, str, Sequence[str]] = None
    preload_timeout: Optional[int] = None
    gloo: Optional[str] = None
    keep_memory: Union[bool, str] = False
    # Output
    redirects: Union[None, int, str] = None
    tee: Union[None, int, str] = None
    log_dir: Optional[str] = None
    log_line_prefix_template: Optional[str] = None
    local_ranks_filter: Union[None, str, Sequence[int]] = None
    duplicate_stdout_filters: Union[None, str, Sequence[str]] = None
    duplicate_stderr_filters: Union[None, str, Sequence[str]] = None
    stdin: Union[None, int, str] = None
    # Failure and shutdown
    max_restarts: Optional[int] = None
    on_failure: Optional[str] = None
    restart_window: Optional[str] = None
    exclude_after: Optional[int] = None
    shutdown_timeout: Optional[int] = None
    monitor_interval: Optional[float] = None
    stacks_timeout: Optional[float] = None
    hang_timeout: Optional[float] = None
    on_hang: Optional[str] = None
    signals_to_handle: Union[None, str, Sequence[str]] = None
    # Nodes and rendezvous
    nnodes: Union[None, int, str] = None
    node_rank: Optional[int] = None
    master_addr: Optional[str] = None
    master_port: Optional[int] = None
    standalone: bool = False
    rdzv_backend: Optional[str] = None
    rdzv_endpoint: Optional[str] = None
    rdzv_id: Optional[str] = None
    rdzv_conf: Union[None, str, Mapping[str, Any]] = None
    local_addr: Optional[str] = None
    topology: Optional[str] = None
    secret: Optional[str] = None
    any_user: bool = False
    # ddprun itself
    log_level: Optional[str] = None
    log_format: Optional[str] = None
    event_log_handler: Optional[str] = None
    event_log_file: Optional[str] = None
    report_file: Optional[str] = None
    serve: Union[bool, str] = False
    serve_token: Optional[str] = None
    trace: Optional[str] = None

    def arguments(self) -> List[str]:
        """Returns the options as words of ddprun's command line, such as ["--nproc-per-node=8"]."""
        words = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            option = "--" + field.name.replace("_", "-")
            if value is True:
                words.append(option)
            elif value is not None and value is not False:
                words.append(f"{option}={_text(value)}")
        return words


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={entry}" for key, entry in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)
