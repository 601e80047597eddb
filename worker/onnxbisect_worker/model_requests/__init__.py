"""The requests that a model process answers: their types, and the code that answers them in the process.

`protocol.ModelProcess` is the list: each method is a request, a line of JSON, and its types are how both ends read it.
`work.ModelWork` answers them; `layout` and `limits` prepare the process before the model is read, `repair` and
`precision` are the long requests, which are called again with the answers so far until nothing is missing. Start with
`protocol`.
"""
