"""The workers of the service: claim work, compile probes, coordinate searches, deliver webhooks."""
