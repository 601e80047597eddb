"""The service's HTTP interface: REST and pages. Routes parse requests and call the database layer."""
