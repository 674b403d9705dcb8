"""What people see of a schedule: pure functions from schedules to rich renderables and plain text."""
