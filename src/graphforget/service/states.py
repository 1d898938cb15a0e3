"""The states of a request, and what OpenDSR calls them."""

from __future__ import annotations

RECEIVED = "received"  # nobody has looked at it yet
PLANNED = "planned"  # it waits for somebody to approve it
APPROVED = "approved"  # it waits for the next round
BATCHED = "batched"  # a round answers it
COMPLETED = "completed"
REFUSED = "refused"
CANCELLED = "cancelled"
PENDING = (RECEIVED, PLANNED)
OPEN = (*PENDING, APPROVED, BATCHED)
FINAL = (COMPLETED, REFUSED, CANCELLED)

# Of a part, which is what one model has to do with a request. It is PLANNED, then BATCHED, then:
APPLIED = "applied"  # released, and not verified yet
VERIFIED = "verified"
NOTHING_HELD = "nothing_held"  # another request of the round, or one before it, has removed everything
PART_FINAL = (VERIFIED, NOTHING_HELD, REFUSED)

FORGOTTEN, REHEARSED = "forgotten", "rehearsed"  # results beside NOTHING_HELD

# OpenDSR has no state for a refusal. A refused request must never look completed.
OPENDSR = {
    **dict.fromkeys(PENDING, "pending"),
    **dict.fromkeys((APPROVED, BATCHED), "in_progress"),
    COMPLETED: "completed",
    **dict.fromkeys((REFUSED, CANCELLED), "cancelled"),
}

MEANINGS = {  # of the levels of a certificate, for the person who reads it first
    "exact": "The released model is the one that training without the deleted data gives, bit for bit.",
    "certified": "The released model is almost indistinguishable from one that was trained without the deleted data "
    "and has the same noise. The words of the certificate state how closely.",
    "conditional": "The guarantee holds only if the conditions in the words of the certificate hold.",
    "empirical": "There is no guarantee.",
}
WORDS = {
    RECEIVED: "Received",
    PLANNED: "Waits for approval",
    APPROVED: "Approved, waits for the next round",
    BATCHED: "Is being answered",
    APPLIED: "Released, is being verified",
    VERIFIED: "Released and verified",
    NOTHING_HELD: "Nothing held",
    COMPLETED: "Completed",
    REFUSED: "Refused",
    CANCELLED: "Cancelled",
}
