"""The workers of the service: claim work, compile probes, coordinate searches, deliver webhooks.

A worker is a process with slots. Each slot claims one piece of work (`claiming`) and does it under a lease that is
renewed. Models are read in child processes (`model_processes`), which answer typed requests (`model_requests`), because
a hostile model must not end the worker. Start with `running`, then `coordinating`.
"""
