"""What the API and the workers of the service share: settings, the opened service, a job's request, outbound rules."""
