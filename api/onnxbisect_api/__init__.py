"""The service's HTTP interface: REST and pages.

Routes parse requests and call the data layer; no model is read in this process, because models are untrusted and large.
`routes/` has one module for each resource, `site/` the pages, which call the REST operations. Below them are
`submission/`, through which every job is created, `views/`, what is shown of jobs, `uploads/`, how bodies are received,
and `errors/`. `access` says who asks, `limits` how often and how many at a time. `app` puts it together; start there,
then with `submission.job_making`.
"""
