"""Jobs that clients submit: the request, the form with a model in it, and the making of the job.

`job_request.JobRequest` is what REST accepts; its fields are those of `onnxbisect.terms`. `job_form` reads the same
document from a form that brings the model along. `job_making` validates a request and stores it; REST and the pages
create jobs only through it. Start with `job_making`.
"""
