"""An emulated Kubernetes cluster over the wire: an API server, controllers, workloads and faults, for the demo and the tests.

The shipped processes talk to it exactly as to a real cluster, with the official client over HTTP; none of them imports this
package. It imports `catalog` and nothing else of ours.

`kinds` says what is served, `store` holds every object and its history, `api` is the HTTP side (authentication, RBAC, verbs,
patches, watches), `server` puts it on a port. Controllers run in the same event loop and call the store directly. Whatever the
recordings of a real API server say is right; where this differs, this is wrong.
"""
