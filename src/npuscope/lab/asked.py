"""What the server asks its pool for, by name: the work itself is loaded in the pool's processes, not in the server."""

from __future__ import annotations

from npuscope.answer.pool import Named
from npuscope.lab.made import Again, Job, Made, Pair, Perfetto, Replay

JOB, QUESTIONS = "npuscope.lab.job", "npuscope.lab.questions"

perform: Named[Job, Made] = Named(JOB, "perform")
compared: Named[Pair, bytes] = Named(JOB, "compared")
written: Named[Perfetto, str] = Named(JOB, "written")
looked_into: Named[Again, bytes] = Named(QUESTIONS, "looked_into")
every_change: Named[Again, bytes] = Named(QUESTIONS, "every_change")
replayed: Named[Replay, bytes] = Named(QUESTIONS, "replayed")
