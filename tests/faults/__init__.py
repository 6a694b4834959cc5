"""What breaks things: a bank that keeps books, proxies, crash points, errors of the database.

Where the named crash points lie (`agentruntime.crash`):

==== ===========================================================================================
P0   a run is written, not committed          P1   committed, nobody told of it
P2   told, not claimed                        P3   claimed
P4   before a node is called                  P5   a step has its result, not committed
P6   before the intents of a turn             P7   intents committed, no call begun
P8   a tool sent its request (in the tool)    P9   the effect is there, answer unread (in the tool)
P10  calls returned, not recorded             P11  recorded, the step not committed
P12  the step committed, the worker not told  P13  P12 of the last step: the end is committed
P14  the message worked off, not acked        P15  acked
A1   questions committed, nobody told         A2   a notice sent, not marked (`approvals`)
A3   an answer written, not committed         A4   committed, nobody told
A5   the gated call about to be marked        S1   the wish to stop heard, not carried out
R1   a take-over written (PostgreSQL: and committed)  T1   an expiry written, not committed
==== ===========================================================================================
"""
