"""What Ascend's hardware queues hold beside kernels: waiting, recording, profiling and copying orders."""

from __future__ import annotations

import re

QUEUE_ORDERS = re.compile(
    r"^(EVENT_|PROFILING_|TASK_|MODEL_|NOTIFY|Notify|STREAM_|FUSION_|CAPTURE_|WRITE_VALUE|Write Value)"
)
