"""Guards between people and runs: questions, answers, rights, secrets."""

from tests.guards.mutant import LIFECYCLE, Mutant

PEOPLE = [
    Mutant(
        "a kept question is never opened anew",
        LIFECYCLE + "pause.py",
        "if status is None and one.kept is None:",
        "if status is None:",
        "tests/promises/test_questions_midway.py -k right_before_the_pause",
    ),
    Mutant(
        "an answer that landed is found again",
        LIFECYCLE + "resume.py",
        "if tries > 1 and _is_answer(interrupt, value, user):",
        "if False:",
        "tests/promises/test_lost_answers.py -k no_second_answer",
    ),
    Mutant(
        "an answer is taken once",
        LIFECYCLE + "resume.py",
        "if interrupt.status != InterruptStatus.OPEN:",
        "if False:",
        "tests/lifecycle/test_questions.py -k one_wins",
    ),
    Mutant(
        "the requester does not decide",
        "approvals/permissions.py",
        "if approval.requester_id == rights.user_id and not allowed_by_name(",
        "if False and not allowed_by_name(",
        "tests/approvals/test_decide.py -k requester",
    ),
    Mutant(
        "the permission to decide",
        "approvals/permissions.py",
        "if policy.permission and policy.permission not in rights.permissions:",
        "if False:",
        "tests/approvals/test_rules.py tests/approvals/test_wrong_people.py",
    ),
    Mutant(
        "the digest that was shown",
        "approvals/decide.py",
        "    _check_digest(answer, approval)\n",
        "",
        "tests/approvals/test_decide.py -k digest",
    ),
    Mutant(
        "secrets are masked in events",
        "agentruntime/graph/masking.py",
        "key: MASK if _is_secret(str(key), names) else",
        "key: MASK if False else",
        "tests/lifecycle/test_tool_calls.py -k secret",
    ),
]
