"""What an AICPU marker means. Builds of the runtime name one phase differently, so names map by label."""

from __future__ import annotations

import polars as pl

# our word -> labels seen in TraCR bundles and swimlanes
ALIASES = {
    "orchestrate": ("Orchestrating", "orch_submit"),
    "read_dimensions": ("Read_Dimensions",),
    "reshape_kernels": ("Reshape_Kernels",),
    "pre_loop": ("Pre_Loop_Info",),
    "scope": ("PTO2_SCOPE_",),
    "schedule": ("Scheduling",),
    "complete": ("Phase1", "Complete", "Retiring", "complete", "poll", "scan"),
    "async_poll": ("async_poll",),
    "drain_sync": ("Phase2", "Drain_Sync_Start", "Draining_Sync", "drain"),
    "drain_prepare": ("drain_prepare",),
    "drain_publish": ("drain_publish",),
    "wire": ("Phase3", "wire"),
    "dummy": ("Phase3b", "Dummy", "Retiring_Dummy", "dummy"),
    "dummy_task": ("dummy_task",),
    "predicated_skip": ("predicated_skip",),
    "dispatch": ("Phase4", "Dispatch", "Dispatching", "dispatch"),
    "release": ("Drain", "Release", "release"),
    "idle": ("Idle", "idle"),
    "resolve": ("Resolving", "resolve", "fanout", "resolve_standalone"),
    "early_dispatch": ("early_dispatch", "prestage"),
    "prepare_graph": ("graph_prepare",),
    # schedulers that run on AICores: after a look at a core's state one of dispatch, refill and steal
    "bootstrap": ("bootstrap",),
    "probe": ("state_probe", "ready_claim"),
    "refill": ("refill", "direct_refill"),
    "steal": ("worksteal", "ready_steal"),
    "initialise": ("Initializing", "handshake", "config", "context_publish", "bootstrap_wait"),
    "deinitialise": ("De_Initializing", "register_release", "exit_signal", "exit_wait"),
    "load": ("DLL_loading",),
    "allocate": ("Allocating", "orch_alloc"),
    "run": ("Running_Task_Single", "Running_Task_Pair"),
    "barrier": ("Barrier",),
    "comm_notify": ("CommNotify",),
    "comm_wait": ("CommWait",),
}
_BY_LABEL = {label: word for word, labels in ALIASES.items() for label in labels}
RUN_LABELS = frozenset(ALIASES["run"])
ROLE_LABELS = {"Orchestrating": "orchestrator", "Scheduling": "scheduler"}


def phase_of(label: pl.Expr) -> pl.Expr:
    """The phase a label stands for; null for a label that is none of the runtime's."""
    return label.replace_strict(_BY_LABEL, default=None, return_dtype=pl.String)
