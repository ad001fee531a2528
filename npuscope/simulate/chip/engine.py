"""Runs a job on the chip, event by event. The same function runs compiled and as plain Python.

Events: a block starts, a block ends, the orchestrator has submitted a task, a scheduler thread comes round its loop.
Between events every block gets on at the speed that the shared memory allows. A thread's loop polls its cores, takes
what is done, resolves consumers, and hands out what is ready: launches whose blocks start together first, then mixed
tasks on idle clusters, then single ones on idle cores, then pending places behind running blocks, then early ones. An
idle thread keeps looping; it sees an event at its next turn.
"""

from __future__ import annotations

import numpy as np

from npuscope.simulate.chip.job import AIC, AIV, MIX, NONE, Floats, Ints, Job, Machine, Times
from npuscope.simulate.compiled import compiled

FAR = 1e300
GATED, WAITING, RUNNING = 1, 2, 3  # states of the block at the front of a core
LEAST_LOOP = 50.0  # nanoseconds of a turn of the scheduler's loop that polls nobody


def _memory(rates: Floats, limit: float) -> tuple[int, float, float]:
    """Where between two slow-downs the memory is: index, share towards the next, and a factor beyond the last."""
    if rates[0] <= limit:
        return 0, 0.0, 1.0
    last = len(rates) - 1
    for g in range(1, last + 1):
        if rates[g] <= limit:
            return g - 1, (rates[g - 1] - limit) / (rates[g - 1] - rates[g]), 1.0
    return last - 1, 1.0, rates[last] / limit


_memory_compiled = compiled(_memory)


def _run_chip(job: Job, machine: Machine, times: Times) -> tuple[float, int]:
    clusters, threads = machine.clusters, machine.threads
    cores = 3 * clusters
    tasks = len(job.shape)
    # the block at the front of each core, and the one behind it
    task = np.full(cores, -1, np.int64)
    block = np.full(cores, -1, np.int64)
    state = np.zeros(cores, np.int64)
    left = np.zeros(cores)
    starts = np.full(cores, FAR)
    behind = np.full(cores, -1, np.int64)
    behind_block = np.full(cores, -1, np.int64)
    behind_gated = np.zeros(cores, np.int64)
    unseen = np.full((cores, 3), -1, np.int64)  # blocks that ended and that nobody has seen
    unseen_count = np.zeros(cores, np.int64)
    used = np.zeros(cores, np.int64)
    # tasks
    missing = job.producers.copy()
    handed = np.zeros(tasks, np.int64)
    done = np.zeros(tasks, np.int64)
    complete = np.zeros(tasks, np.int64)
    submitted = np.zeros(tasks, np.int64)
    staged = np.zeros(tasks, np.int64)  # in the early queue or staged
    unready = job.producers.copy()  # producers that are neither done nor early and handed out
    queues = np.full((4, tasks + 1), -1, np.int64)  # ready tasks by shape
    head = np.zeros(4, np.int64)
    tail = np.zeros(4, np.int64)
    early_queue = np.full((3, tasks + 1), -1, np.int64)
    early_head = np.zeros(3, np.int64)
    early_tail = np.zeros(3, np.int64)
    rates = np.zeros(job.draws.shape[1])
    thread_at = np.zeros(threads)
    for n in range(threads):
        thread_at[n] = FAR
    last_turn = np.zeros(threads)
    asleep = np.ones(threads, np.int64)
    finished = 0
    oldest = 0  # tasks before it are all complete
    next_task = 0
    orchestrator_at = 0.0
    orchestrating = 0
    now = 0.0
    changed = True
    g, share, factor = 0, 0.0, 1.0
    events = 0
    loop_rows = 0
    together = -1  # the launch that drains the chip
    while finished < tasks:
        events += 1
        if changed:
            if events % 512 == 0:
                rates[:] = 0.0
                for c in range(cores):
                    if state[c] == RUNNING:
                        kind = job.block_class[job.first_block[task[c]] + block[c]]
                        for n in range(len(rates)):
                            rates[n] += job.draws[kind, n]
            g, share, factor = _memory_compiled(rates, machine.limit)
            changed = False
        # --- the next event
        when = FAR
        for n in range(threads):
            if thread_at[n] < when:
                when = thread_at[n]
        if next_task < tasks and orchestrator_at < when:
            when = orchestrator_at
        for c in range(cores):
            if state[c] == RUNNING:
                kind = job.block_class[job.first_block[task[c]] + block[c]]
                span = (job.run[kind, g] + share * (job.run[kind, g + 1] - job.run[kind, g])) * factor
                at = now + left[c] * span
                if at < when:
                    when = at
            elif state[c] == WAITING and starts[c] < when:
                when = starts[c]
        if when >= FAR:
            return now, -1  # nobody can go on
        # --- everybody gets on until then
        passed = when - now
        for c in range(cores):
            if state[c] == RUNNING:
                kind = job.block_class[job.first_block[task[c]] + block[c]]
                span = (job.run[kind, g] + share * (job.run[kind, g + 1] - job.run[kind, g])) * factor
                left[c] = left[c] - passed / span if span > 0 else 0.0
        now = when
        # --- blocks that start and end
        for c in range(cores):
            if state[c] == WAITING and starts[c] <= now:
                row = job.first_block[task[c]] + block[c]
                state[c] = RUNNING
                left[c] = 1.0
                times.start[row] = now
                for n in range(len(rates)):
                    rates[n] += job.draws[job.block_class[row], n]
                changed = True
        for c in range(cores):
            if state[c] != RUNNING:
                continue
            row = job.first_block[task[c]] + block[c]
            kind = job.block_class[row]
            span = (job.run[kind, g] + share * (job.run[kind, g + 1] - job.run[kind, g])) * factor
            if left[c] * span > 1e-6:
                continue
            times.end[row] = now
            for n in range(len(rates)):
                rates[n] -= job.draws[kind, n]
            changed = True
            unseen[c, unseen_count[c]] = row
            unseen_count[c] += 1
            t = task[c]
            state[c] = 0
            task[c] = -1
            if job.shape[t] == MIX:
                for v in (clusters + 2 * c, clusters + 2 * c + 1):
                    state[v] = 0
                    task[v] = -1
            n = c % clusters if c < clusters else (c - clusters) // 2
            owner = n % threads
            if asleep[owner] == 1:
                seen = now + machine.fin
                turn = max(LEAST_LOOP, machine.poll)
                at = last_turn[owner] + np.ceil((seen - last_turn[owner]) / turn) * turn
                if at < thread_at[owner]:
                    thread_at[owner] = at
        for c in range(cores):  # what waited behind goes on by itself
            if behind[c] < 0 or state[c] != 0:
                continue
            t = behind[c]
            if job.shape[t] == MIX:
                if c >= clusters:
                    continue
                v = clusters + 2 * c
                if state[v] != 0 or state[v + 1] != 0:
                    continue
                behind[v] = -1
                behind[v + 1] = -1
                task[v] = t
                task[v + 1] = t
                state[v] = GATED + 3
                state[v + 1] = GATED + 3
            task[c] = t
            block[c] = behind_block[c]
            behind[c] = -1
            if behind_gated[c] == 1 and missing[t] > 0:
                state[c] = GATED
            else:
                state[c] = WAITING
                starts[c] = now + machine.switch
        # --- the orchestrator
        if next_task < tasks and orchestrator_at <= now:
            t = next_task
            if orchestrating == 1:
                times.submitted[t] = now
                submitted[t] = 1
                orchestrating = 0
                next_task += 1
                if missing[t] == 0:
                    times.ready[t] = now
                    s = job.shape[t]
                    queues[s, tail[s]] = t
                    tail[s] += 1
                    for n in range(threads):
                        if asleep[n] == 1:
                            turn = max(LEAST_LOOP, machine.poll)
                            at = last_turn[n] + np.ceil((now - last_turn[n]) / turn) * turn
                            if at < thread_at[n]:
                                thread_at[n] = at
                elif unready[t] == 0 and job.shape[t] != NONE and job.together[t] == 0 and staged[t] == 0:
                    s = job.shape[t]
                    staged[t] = 1
                    early_queue[s, early_tail[s]] = t
                    early_tail[s] += 1
            if next_task < tasks:
                t = next_task
                host = job.waits_host[t]
                if (host >= 0 and complete[host] == 0) or t - oldest >= machine.window:
                    orchestrator_at = FAR  # woken when a task completes
                else:
                    times.began[t] = now
                    orchestrating = 1
                    orchestrator_at = now + job.submit[t]
        # --- scheduler threads
        for n in range(threads):
            if thread_at[n] > now:
                continue
            clock = now
            polled = 0.0
            completed = 0.0
            dispatched = 0.0
            acted = 0
            if n == 0:
                while head[NONE] < tail[NONE]:
                    t = queues[NONE, head[NONE]]
                    head[NONE] += 1
                    clock += machine.dummy
                    completed += machine.dummy
                    acted += 1
                    row = job.first_block[t]
                    if job.blocks[t] > 0:
                        times.dispatch[row] = clock
                        times.start[row] = clock
                        times.end[row] = clock
                        times.finish[row] = clock
                    unseen_row = -2 - t
                    clock, completed, finished = _completed(
                        job, machine, times, unseen_row, clock, completed, finished, missing, done, complete, submitted,
                        unready, staged, queues, tail, early_queue, early_tail, starts, state, task, clusters,
                    )  # fmt: skip
            for c in range(cores):
                cluster = c if c < clusters else (c - clusters) // 2
                if cluster % threads != n:
                    continue
                if state[c] == 0 and unseen_count[c] == 0:
                    continue
                clock += machine.poll
                polled += machine.poll
                while unseen_count[c] > 0 and times.end[unseen[c, 0]] + machine.fin <= clock:
                    row = unseen[c, 0]
                    for k in range(unseen_count[c] - 1):
                        unseen[c, k] = unseen[c, k + 1]
                    unseen_count[c] -= 1
                    clock += machine.complete
                    completed += machine.complete
                    acted += 1
                    times.finish[row] = clock
                    clock, completed, finished = _completed(
                        job, machine, times, row, clock, completed, finished, missing, done, complete, submitted,
                        unready, staged, queues, tail, early_queue, early_tail, starts, state, task, clusters,
                    )  # fmt: skip
            while oldest < tasks and complete[oldest] == 1:
                oldest += 1
            if next_task < tasks and orchestrator_at >= FAR:
                host = job.waits_host[next_task]
                if (host < 0 or complete[host] == 1) and next_task - oldest < machine.window:
                    orchestrator_at = clock
            # launches whose blocks start together: nothing else is handed out until all have a place
            for s in range(3):
                if together < 0 and head[s] < tail[s] and job.together[queues[s, head[s]]] == 1:
                    together = queues[s, head[s]]
            if together >= 0:
                s = job.shape[together]
                room = 0
                for c in range(clusters):
                    v = clusters + 2 * c
                    if (s == MIX and state[c] == 0 and state[v] == 0 and state[v + 1] == 0) or (
                        s == AIC and state[c] == 0
                    ):
                        room += 1
                    elif s == AIV:
                        room += (state[v] == 0) + (state[v + 1] == 0)
                wanted = min(job.blocks[together], room if room > 0 else 1)
                most = clusters if s != AIV else 2 * clusters
                if room >= min(job.blocks[together], most):
                    wanted = min(job.blocks[together], room)
                    per = (wanted + threads - 1) // threads
                    begin = clock + per * machine.dispatch + machine.pickup
                    b = 0
                    first = 0 if s != AIV else clusters
                    limit = clusters if s != AIV else cores
                    for c in range(first, limit):
                        if b >= wanted or state[c] != 0:
                            continue
                        if s == MIX and (state[clusters + 2 * c] != 0 or state[clusters + 2 * c + 1] != 0):
                            continue
                        task[c] = together
                        block[c] = b
                        state[c] = WAITING
                        starts[c] = begin
                        used[c] = 1
                        row = job.first_block[together] + b
                        times.core[row] = c
                        times.dispatch[row] = clock + (b // threads + 1) * machine.dispatch
                        if s == MIX:
                            for v in (clusters + 2 * c, clusters + 2 * c + 1):
                                task[v] = together
                                state[v] = GATED + 3
                        b += 1
                    handed[together] = b
                    clock += per * machine.dispatch
                    dispatched += per * machine.dispatch
                    acted += b
                    if b >= job.blocks[together]:
                        head[s] += 1
                    else:
                        job.together[together] = 0  # the rest follows as places come free
                    _published(
                        job, together, handed, unready, submitted, missing, staged, early_queue, early_tail,
                    )  # fmt: skip
                    together = -1
            else:
                clock, dispatched, acted = _hand_out(
                    job, machine, times, n, clock, dispatched, acted, task, block, state, starts, behind, behind_block,
                    behind_gated, used, handed, queues, head, tail, early_queue, early_head, early_tail, missing,
                    unready, submitted, staged,
                )  # fmt: skip
            last_turn[n] = now
            if acted > 0:
                if loop_rows < len(times.loops):
                    times.loops[loop_rows, 0] = n
                    times.loops[loop_rows, 1] = now
                    times.loops[loop_rows, 2] = polled
                    times.loops[loop_rows, 3] = completed
                    times.loops[loop_rows, 4] = dispatched
                loop_rows += 1
                thread_at[n] = max(clock, now + LEAST_LOOP)
                asleep[n] = 0
                for k in range(threads):  # what was made ready may be for the others
                    if k != n and asleep[k] == 1 and thread_at[k] > clock:
                        turn = max(LEAST_LOOP, machine.poll)
                        thread_at[k] = last_turn[k] + np.ceil((clock - last_turn[k]) / turn) * turn
            else:
                # Nothing to do: it keeps polling; it acts at the turn after something happened.
                turn = max(LEAST_LOOP, polled)
                asleep[n] = 1
                at = FAR
                for c in range(cores):
                    cluster = c if c < clusters else (c - clusters) // 2
                    if cluster % threads == n and unseen_count[c] > 0:
                        seen = times.end[unseen[c, 0]] + machine.fin
                        if seen < at:
                            at = seen
                if at < FAR:
                    at = now + max(1.0, np.ceil((at - now) / turn)) * turn
                thread_at[n] = at
    return now, loop_rows


def _completed(
    job: Job, machine: Machine, times: Times, row: int, clock: float, completed: float, finished: int, missing: Ints,
    done: Ints, complete: Ints, submitted: Ints, unready: Ints, staged: Ints, queues: Ints, tail: Ints,
    early_queue: Ints, early_tail: Ints, starts: Floats, state: Ints, task: Ints, clusters: int,
) -> tuple[float, float, int]:  # fmt: skip
    """A block was seen done: when it was its task's last, consumers may become ready."""
    if row < 0:
        t = -2 - row
        done[t] = job.blocks[t]
    else:
        t = int(np.searchsorted(job.first_block, row, side="right")) - 1
        while job.blocks[t] == 0:
            t -= 1
        done[t] += 1
    if done[t] < job.blocks[t]:
        return clock, completed, finished
    complete[t] = 1
    finished += 1
    for k in range(job.first_out[t], job.first_out[t + 1]):
        consumer = job.out[k]
        clock += machine.resolve
        completed += machine.resolve
        missing[consumer] -= 1
        if job.early[t] == 0:
            unready[consumer] -= 1
        if missing[consumer] > 0:
            if (
                submitted[consumer] == 1
                and unready[consumer] == 0
                and staged[consumer] == 0
                and job.shape[consumer] != NONE
                and job.together[consumer] == 0
            ):
                staged[consumer] = 1
                s = job.shape[consumer]
                early_queue[s, early_tail[s]] = consumer
                early_tail[s] += 1
            continue
        if submitted[consumer] == 0:
            continue
        times.ready[consumer] = clock
        if staged[consumer] == 1:  # blocks on gated cores hear the doorbell
            for c in range(len(state)):
                if task[c] == consumer and state[c] == GATED:
                    state[c] = WAITING
                    starts[c] = clock + machine.visible
        s = job.shape[consumer]
        queues[s, tail[s]] = consumer
        tail[s] += 1
    return clock, completed, finished


def _published(
    job: Job, t: int, handed: Ints, unready: Ints, submitted: Ints, missing: Ints, staged: Ints, early_queue: Ints,
    early_tail: Ints,
) -> None:  # fmt: skip
    """All blocks of an early task are handed out: consumers that wait for such tasks only may be staged."""
    if job.early[t] == 0 or handed[t] < job.blocks[t]:
        return
    for k in range(job.first_out[t], job.first_out[t + 1]):
        consumer = job.out[k]
        unready[consumer] -= 1
        if (
            unready[consumer] == 0
            and submitted[consumer] == 1
            and missing[consumer] > 0
            and staged[consumer] == 0
            and job.shape[consumer] != NONE
            and job.together[consumer] == 0
        ):
            staged[consumer] = 1
            s = job.shape[consumer]
            early_queue[s, early_tail[s]] = consumer
            early_tail[s] += 1


_completed = compiled(_completed)
_published = compiled(_published)


def _place(
    job: Job, machine: Machine, times: Times, t: int, c: int, clock: float, pending: bool, gated: bool, task: Ints,
    block: Ints, state: Ints, starts: Floats, behind: Ints, behind_block: Ints, behind_gated: Ints, used: Ints,
    handed: Ints,
) -> None:  # fmt: skip
    """Puts the next block of a task on a core, or behind the block that runs there."""
    clusters = machine.clusters
    b = handed[t]
    handed[t] += 1
    row = job.first_block[t] + b
    times.core[row] = c
    times.dispatch[row] = clock
    mixed = job.shape[t] == MIX
    if pending:
        behind[c] = t
        behind_block[c] = b
        behind_gated[c] = 1 if gated else 0
        if mixed:
            behind[clusters + 2 * c] = t
            behind[clusters + 2 * c + 1] = t
        return
    task[c] = t
    block[c] = b
    if gated:
        state[c] = GATED
    else:
        state[c] = WAITING
        starts[c] = clock + (machine.pickup if used[c] == 1 else machine.pickup_first)
    used[c] = 1
    if mixed:
        for v in (clusters + 2 * c, clusters + 2 * c + 1):
            task[v] = t
            state[v] = GATED + 3
            used[v] = 1


_place = compiled(_place)


def _hand_out(
    job: Job, machine: Machine, times: Times, n: int, clock: float, dispatched: float, acted: int, task: Ints,
    block: Ints, state: Ints, starts: Floats, behind: Ints, behind_block: Ints, behind_gated: Ints, used: Ints,
    handed: Ints, queues: Ints, head: Ints, tail: Ints, early_queue: Ints, early_head: Ints, early_tail: Ints,
    missing: Ints, unready: Ints, submitted: Ints, staged: Ints,
) -> tuple[float, float, int]:  # fmt: skip
    """One thread hands out what is ready to its own cores."""
    clusters, threads = machine.clusters, machine.threads
    # Round 0: idle places. Round 1: places behind running blocks, unless a peer has an idle core. Round 2: early tasks.
    for round_ in range(3):
        for turn in range(3):
            s = turn if n % 2 == 0 or turn == 0 else 3 - turn  # mixed first, then by the thread's parity
            if round_ == 1:
                peer = False
                for c in range(clusters):
                    if c % threads == n:
                        continue
                    v = clusters + 2 * c
                    if (
                        (s == MIX and state[c] == 0 and state[v] == 0 and state[v + 1] == 0)
                        or (s == AIC and state[c] == 0)
                        or (s == AIV and (state[v] == 0 or state[v + 1] == 0))
                    ):
                        peer = True
                if peer:
                    continue
            first = clusters if s == AIV else 0
            last = 3 * clusters if s == AIV else clusters
            early = round_ == 2
            for c in range(first, last):
                cluster = c if c < clusters else (c - clusters) // 2
                if cluster % threads != n:
                    continue
                if early:
                    while early_head[s] < early_tail[s] and (
                        missing[early_queue[s, early_head[s]]] == 0
                        or handed[early_queue[s, early_head[s]]] >= job.blocks[early_queue[s, early_head[s]]]
                    ):
                        early_head[s] += 1
                    if early_head[s] >= early_tail[s]:
                        break
                    t = early_queue[s, early_head[s]]
                else:
                    while head[s] < tail[s] and handed[queues[s, head[s]]] >= job.blocks[queues[s, head[s]]]:
                        head[s] += 1
                    if head[s] >= tail[s]:
                        break
                    t = queues[s, head[s]]
                    if job.together[t] == 1:
                        break
                v = clusters + 2 * c if s != AIV else 0
                idle = state[c] == 0 and behind[c] < 0
                if s == MIX:
                    idle = idle and state[v] == 0 and state[v + 1] == 0 and behind[v] < 0 and behind[v + 1] < 0
                room = behind[c] < 0
                if s == MIX:
                    room = room and behind[v] < 0 and behind[v + 1] < 0
                if idle:
                    cost = machine.stage if early else machine.dispatch
                    clock += cost
                    dispatched += cost
                    acted += 1
                    _place(
                        job, machine, times, t, c, clock, False, early, task, block, state, starts, behind,
                        behind_block, behind_gated, used, handed,
                    )  # fmt: skip
                elif round_ >= 1 and room:
                    cost = machine.stage if early else machine.dispatch
                    clock += cost
                    dispatched += cost
                    acted += 1
                    _place(
                        job, machine, times, t, c, clock, True, early, task, block, state, starts, behind,
                        behind_block, behind_gated, used, handed,
                    )  # fmt: skip
                else:
                    continue
                if handed[t] >= job.blocks[t]:
                    _published(
                        job, t, handed, unready, submitted, missing, staged, early_queue, early_tail,
                    )  # fmt: skip
            if round_ == 0 and s == MIX and head[MIX] < tail[MIX]:
                t = queues[MIX, head[MIX]]
                if handed[t] < job.blocks[t] and job.together[t] == 0:
                    return clock, dispatched, acted  # mixed work remains: single cores are kept for it
    return clock, dispatched, acted


_hand_out = compiled(_hand_out)
_run_chip_compiled = compiled(_run_chip)


def run_chip(job: Job, machine: Machine, plain: bool = False) -> tuple[Times, float, int]:
    """Times of every block, when all was done, and how many loops of the scheduler did something (-1: stuck)."""
    blocks, tasks = len(job.block_class), len(job.shape)
    times = Times(
        np.full(blocks, -1, np.int64),
        np.zeros(blocks),
        np.zeros(blocks),
        np.zeros(blocks),
        np.zeros(blocks),
        np.zeros(tasks),
        np.zeros(tasks),
        np.zeros(tasks),
        np.zeros((2 * blocks + tasks + 16, 5)),
    )
    job = job._replace(together=job.together.copy())
    end, rows = (_run_chip if plain else _run_chip_compiled)(job, machine, times)
    return times._replace(loops=times.loops[: max(rows, 0)]), end, rows
