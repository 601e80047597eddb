"""Code that the API and the workers share: settings, resources of a process, search specs, outbound rules."""
