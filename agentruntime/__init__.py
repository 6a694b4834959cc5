"""Durable agent runs, with people in the loop.

The story of a run, in the order of the files of `lifecycle/`:

    start       a message comes in: a run is queued on its thread, in one transaction
    claim       a worker takes the lease of a queued run; a fencing token comes with it
    loop        node after node, until the run pauses, ends, or its time slice is over
    step        one node call, and the one commit that makes it durable
    tool_calls  the calls a model asked for: intent, act, record, each its own ledger row
    pause       what a person must answer is asked, and the lease is given back
    resume      the first answer wins, and queues the run again
    stop        somebody wants it to end now
    finish      completed, failed, stopped or timed out: said once, in the last commit
    recover     the sweep: lapsed leases, lost messages, passed deadlines
"""
