"""Code that the API and the workers share: settings, resources of a process, search specs, outbound rules.

`settings` are read from the environment once; `service` opens what every process needs. Start with `service`.
"""
