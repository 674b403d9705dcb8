"""The independent checker: verifies schedules against ``docs/formulation.md`` without any solver code."""

from twill.check.checker import CheckedSchedule, check_schedule, checked
from twill.check.report import CheckReport, Finding

__all__ = ["CheckReport", "CheckedSchedule", "Finding", "check_schedule", "checked"]
