"""The vector account of aging against adding up, one by one, what went ahead of whom."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from waiting import sequence

from palmette.runtime.scheduler.aging import Aging
from palmette.runtime.scheduler.sequence import Sequence


@dataclass
class Account:
    sequence: Sequence
    tokens: int
    limit: float
    ahead: int = 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["come", "come", "admit", "leave"]), st.integers(0, 9), st.integers(1, 20)),
        max_size=250,
    ),
    st.floats(0, 3),
    st.integers(0, 60),
)
def test_it_counts_what_was_given_to_later_ones(events: list[tuple[str, int, int]], alpha: float, beta: int) -> None:
    aging = Aging(alpha, beta)
    accounts: list[Account] = []
    moment = 0
    for order, (event, which, tokens) in enumerate(events):
        if event == "come":
            moment += which % 3 > 0
            queued = sum(account.tokens for account in accounts)
            accounts.append(Account(sequence(order, moment=moment), tokens, alpha * queued + beta))
            aging.arrived(accounts[-1].sequence, tokens)
        elif accounts:
            gone = accounts.pop(-1 - which % len(accounts)) if event == "admit" else accounts.pop(which % len(accounts))
            aging.left(gone.sequence)
            if event == "admit":
                for account in accounts:
                    account.ahead += tokens * (account.sequence.moment < gone.sequence.moment)
                overdue = [account for account in accounts if account.ahead > account.limit]
                assert aging.admitted(gone.sequence.moment, tokens) == [account.sequence for account in overdue]
                for account in overdue:  # they need no account any more
                    accounts.remove(account)
                    aging.left(account.sequence)
        assert len(aging) == len(accounts)
        assert aging.queued_tokens == sum(account.tokens for account in accounts)


def test_one_that_has_no_account_may_leave() -> None:
    aging = Aging(1, 1)
    aging.left(sequence(0))
    assert len(aging) == 0
