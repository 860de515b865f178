"""The render worker: templates and YAML in a process that may be killed."""
