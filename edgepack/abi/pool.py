"""The sessions of a model's library that threads share, and prepared calls of it. A wheel has this file as
one of its modules.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes as c
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import get_ident
from typing import Any

__all__ = ["ClosedError", "Pool", "PreparedCall", "address_of", "cores"]


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def address_of(array: Any) -> int:
    """Where a NumPy array's data are; it is aligned or not, contiguous or not."""
    try:
        # Half the time of `array.ctypes.data`, and less than that of `__array_interface__`.
        return _address(_view(array))
    except (TypeError, ValueError, BufferError):  # not contiguous, not writable, or without elements
        return int(array.ctypes.data)


_address, _view = c.addressof, c.c_char.from_buffer


class PreparedCall:
    """A session of the library with the arguments of its runs, of which only the buffers' addresses change.

    Args:
        function: the library's ``session_run``.
        handle: the session, a ``c_void_p``.
        inputs, outputs: bytes of each, in the model's order.
    """

    def __init__(
        self, function: Callable[..., int], handle: Any, inputs: Sequence[int], outputs: Sequence[int]
    ) -> None:
        self.handle = handle
        self.function = function
        #: The tuple of addresses that ``words`` has; None of another sequence, which may have changed since.
        self.addresses: tuple[int, ...] | None = None
        # ep_const_buffer and ep_buffer are both an address and a size. One array for all: to set an element
        # takes a fifth of the time that a field of a struct in an array does.
        self.words = (c.c_size_t * (2 * (len(inputs) + len(outputs)) + 2))()
        for index, nbytes in enumerate((*inputs, *outputs)):
            self.words[2 * index + 1] = nbytes
        first = c.addressof(self.words)
        behind = first + len(inputs) * 2 * c.sizeof(c.c_size_t)
        # Objects of ctypes, which are converted sooner than integers.
        self.arguments = (
            handle,
            c.c_void_p(first),
            c.c_size_t(len(inputs)),
            c.c_void_p(behind),
            c.c_size_t(len(outputs)),
        )


class ClosedError(Exception):
    """The sessions are closed."""


class Pool:
    """Sessions of one opened model for the runs of any thread: each run has one to itself. Where all are in
    use, another one is made if fewer than ``limit`` are there, else the run waits. Their end waits for the
    runs, as the library itself does not.

    There is no lock: who uses which session stands in one dict, for ``setdefault`` decides who gets it, and
    notes it, in one step that no other thread and no signal's handler comes between. A lock costs more than
    the rest of a small model's run, and stays held where a handler raises at the wrong moment.

    Args:
        make: makes a session; what it raises for the first one reaches the caller, later ones are done
            without.
        limit: how many there are at most.

    Attributes:
        open: whether the sessions may be used.
        calls: the sessions that there are.
    """

    def __init__(self, make: Callable[[], PreparedCall], limit: int) -> None:
        self.open = True
        self.limit = limit
        self.calls: list[PreparedCall] = []
        self._make = make
        self._lost: list[PreparedCall] = []
        # Who uses what: sessions and, by keys of their own, other calls. A user is a list, as one thread may
        # be in several calls.
        self._users: dict[object, list[int]] = {}
        # Places of sessions, and who makes one there; nobody any more where there is one.
        self._places: dict[int, list[int]] = {0: []}
        self._end_claims: dict[str, list[int]] = {}
        self._ended = False
        self._waiting: deque[Any] = deque()
        self.calls.append(make())
        _all_pools.add(self)

    def run(self, addresses: Sequence[int]) -> int:
        """Runs the model once, in a session that no other call uses meanwhile; the library's status.

        Args:
            addresses: of the inputs' and the outputs' memory, in the model's order.

        Raises:
            ClosedError: there are no sessions any more.
        """
        user = [get_ident()]
        users = self._users
        call: PreparedCall | None = None
        try:
            for call in self.calls:
                if users.setdefault(call, user) is user:
                    break
            else:
                call = self._wait_for_one(user)
            if not self.open:
                raise ClosedError
            if addresses is not call.addresses:  # what is the same tuple has the same addresses
                words, place, call.addresses = call.words, 0, None
                for address in addresses:
                    words[place] = address
                    place += 2
                if type(addresses) is tuple:
                    call.addresses = addresses
            return call.function(*call.arguments)
        except BaseException:
            self._give_back(user)
            raise
        finally:
            # No call of a function stands before `del`: there Python would let a signal's handler in.
            try:
                if users[call] is user:
                    del users[call]
            except KeyError:
                pass
            if self._waiting:
                self._wake()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keeps the sessions open while the body of the ``with`` runs. Raises ClosedError if they are not."""
        key, user = object(), [get_ident()]
        try:
            self._users[key] = user
            if not self.open:
                raise ClosedError
            yield
        finally:
            self._users.pop(key, None)
            self._wake()

    def end(self, destroy: Callable[[Sequence[PreparedCall]], None]) -> None:
        """Lets no further call in, waits for those that are, and calls ``destroy``, if nobody did, with all
        sessions.

        Raises:
            RuntimeError: a call of this thread is in a session (a signal's handler interrupted it): to wait
                for it would have no end.
        """
        user = [get_ident()]
        if user in list(self._users.values()):
            raise RuntimeError("the session cannot be closed by the call that it would have to wait for")
        self.open = False
        self._wake_all()
        while self._users:
            self._sleep(lambda: not self._users)
        if self._end_claims.setdefault("end", user) is user:
            try:
                destroy([*self.calls, *self._lost])
            finally:
                self._ended = True
                self._wake_all()
        while not self._ended:
            self._sleep(lambda: self._ended)

    def _wait_for_one(self, user: list[int]) -> PreparedCall:
        """A session that is noted as this user's, as soon as there is one."""
        found: list[PreparedCall] = []

        def look() -> bool:
            for call in self.calls:
                if self._users.setdefault(call, user) is user:
                    found.append(call)
                    return True
            return not self.open

        while not look():
            place = next((n for n in range(self.limit) if self._places.setdefault(n, user) is user), None)
            if place is None:
                self._sleep(look)
            else:
                self._make_another(place, user)
            if found:
                break
        if not found:
            raise ClosedError
        return found[0]

    def _make_another(self, place: int, user: list[int]) -> None:
        key = object()
        try:
            self._users[key] = user
            if self.open:
                self.calls.append(self._make())
                self._places[place] = []
        except Exception:
            # Memory or threads for more are not there: those that are have to do.
            self.limit = len(self.calls)
        finally:
            if self._places[place] is user:
                del self._places[place]
            self._users.pop(key, None)
            self._wake()

    def _sleep(self, look: Callable[[], bool]) -> None:
        """Waits for :meth:`_wake`, unless ``look`` finds what is waited for; a second at most: a signal's
        handler that raises may have come between the end of a call and its notice."""
        waiting, woken = threading.Lock(), False
        waiting.acquire()
        try:
            # Before it looks, as who gives one back looks for who waits when it is given back.
            self._waiting.append(waiting)
            if not look():
                woken = waiting.acquire(timeout=1)
        finally:
            try:
                self._waiting.remove(waiting)
            except ValueError:
                if not woken:
                    self._wake()  # it was this one's turn, which is of no use to it

    def _give_back(self, user: list[int]) -> None:
        """Frees all that a call holds, also what it got and does not know of: a signal's handler raised."""
        for key, other in list(self._users.items()):
            if other is user:
                del self._users[key]
        for place, other in list(self._places.items()):
            if other is user:
                del self._places[place]

    def _wake(self) -> None:
        """Lets one go on that waits, or all if the end is among what they wait for."""
        if not self.open:
            self._wake_all()
            return
        with suppress(IndexError):
            self._waiting.popleft().release()

    def _wake_all(self) -> None:
        with suppress(IndexError):
            while True:
                self._waiting.popleft().release()

    def _forked(self) -> None:
        """A child of a fork has none of its parent's other threads: what they held stays theirs."""
        self._waiting.clear()
        here = get_ident()
        for key, user in list(self._users.items()):
            if user[0] != here:
                del self._users[key]
                # Of a session, the library says that it is running, for ever.
                self._lost += [call for call in self.calls if call is key]
        self.calls = [call for call in self.calls if call not in self._lost]
        self._places = {number: [] for number in range(len(self.calls))}


_all_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _forget_the_parents_calls() -> None:
    for pool in list(_all_pools):
        pool._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_the_parents_calls)
