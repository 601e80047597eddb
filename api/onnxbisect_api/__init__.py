"""The service's HTTP interface: REST and pages.

Routes parse requests and call the data layer; no model is read in this process, because models are untrusted and large.
`routes/` has one module for each resource, `site/` the pages, which call the REST operations. `app` puts it together;
start there, then with `job_making`, through which every job is created.
"""
