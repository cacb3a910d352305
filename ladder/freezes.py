"""Weekly windows and dated spans in which nothing happens by itself, in a named time zone.

Windows are compared as wall clocks in their zone, so that `FRI 16:00` stays 16:00 through a change of summer time.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, model_validator

from catalog.cases import Freeze
from catalog.documents import Document
from ladder.matching import Match

DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_WEEKLY = re.compile(r"(?:(?P<first>[A-Z]{3})(?:-(?P<last>[A-Z]{3}))? )?(?P<begin>\d\d:\d\d)-(?P<end>\d\d:\d\d)")
_DATED = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"{name!r} is not a known time zone; write one such as Europe/Berlin or UTC") from error
    return name


def _minutes(text: str) -> int:
    hours, minutes = int(text[:2]), int(text[3:])
    if minutes > 59 or hours * 60 + minutes > 24 * 60:
        raise ValueError(f"{text!r} is not a time of day; write HH:MM between 00:00 and 24:00")
    return hours * 60 + minutes


class Weekly(Document):
    """A window that comes back: days it begins on (0 Monday), minutes after midnight; past midnight when end ≤ begin."""

    days: tuple[int, ...]
    begin: int
    end: int

    @classmethod
    def parse(cls, text: str) -> Weekly:
        """Read `FRI 16:00-24:00`, `MON-FRI 22:00-06:00` or `02:00-03:00` (every day).

        Raises:
            ValueError: not of that form.
        """
        found = _WEEKLY.fullmatch(text)
        if found is None:
            raise ValueError(f'{text!r} is not a window; write for example "FRI 16:00-24:00" or "MON-FRI 22:00-06:00"')
        begin, end = _minutes(found["begin"]), _minutes(found["end"])
        if begin == end:
            raise ValueError(f"{text!r} begins and ends at the same time; for a whole day write 00:00-24:00")
        return cls(days=_days(found["first"], found["last"]), begin=begin, end=end)

    def ends(self, local: datetime) -> datetime | None:
        """End of the window that `local` (wall time, no zone) lies in, if it lies in one."""
        length = (self.end - self.begin) % (24 * 60) or 24 * 60
        for back in (0, 1):
            midnight = local.replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=back)
            begin = midnight + timedelta(minutes=self.begin)
            end = begin + timedelta(minutes=length)
            if midnight.weekday() in self.days and begin <= local < end:
                return end
        return None


def _days(first: str | None, last: str | None) -> tuple[int, ...]:
    if first is None:
        return tuple(range(7))
    for name in (first, last or first):
        if name not in DAYS:
            raise ValueError(f"{name!r} is not a day; write one of {', '.join(DAYS)}")
    begin = DAYS.index(first)
    length = (DAYS.index(last or first) - begin) % 7
    return tuple((begin + step) % 7 for step in range(length + 1))


class FreezeWindow(Document):
    """One entry of `freezes:`: what it matches, and either `every` (weekly) or `begin` and `end` (dated)."""

    match: Match = Match()
    every: str | None = None
    begin: str | None = Field(default=None, description="YYYY-MM-DD HH:MM in `zone`")
    end: str | None = None
    zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    name: str = Field(default="", max_length=100)
    reason: str = Field(default="", max_length=500)

    @model_validator(mode="after")
    def _readable(self) -> FreezeWindow:
        if self.every is not None:
            Weekly.parse(self.every)
            if self.begin or self.end:
                raise ValueError("give either every: or begin: and end:, not both")
            return self
        if self.begin is None or self.end is None:
            raise ValueError('give every: "FRI 16:00-24:00", or begin: and end: as "2026-12-24 12:00"')
        if _dated(self.begin) >= _dated(self.end):
            raise ValueError(f"the freeze ends ({self.end}) before it begins ({self.begin})")
        return self

    def in_force(self, now: datetime) -> Freeze | None:
        """The freeze with its end, if `now` lies in a window."""
        zone = ZoneInfo(self.zone)
        until = self._ends(now.astimezone(zone).replace(tzinfo=None))
        if until is None:
            return None
        return Freeze(name=self.title, until=until.replace(tzinfo=zone), reason=self.reason)

    def _ends(self, local: datetime) -> datetime | None:
        if self.every is not None:
            return Weekly.parse(self.every).ends(local)
        begin, end = _dated(self.begin or ""), _dated(self.end or "")
        return end if begin <= local < end else None

    @property
    def title(self) -> str:
        """Its name, or the window itself."""
        return self.name or f"{self.every or f'{self.begin} to {self.end}'} {self.zone}"


def _dated(text: Any) -> datetime:
    if not isinstance(text, str) or _DATED.fullmatch(text) is None:
        raise ValueError(f'{text!r} is not a date and time; write "2026-12-24 12:00"')
    return datetime.strptime(text, "%Y-%m-%d %H:%M")  # noqa: DTZ007 - wall time of `zone`, given its zone by the caller
