"""The lab: one app for traces and programs, in a file or served. `page/` has its modules, `payload/` what they show."""
