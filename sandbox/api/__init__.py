"""The HTTP side of the emulated API server, without the socket.

`calls` reads a request, `reading`, `writing`, `deleting`, `scaling`, `evicting`, `logs` and `reviews` answer it, `disturbances`
spoils it on purpose. Every function takes a `Call` and returns an `Answer` (or a `Stream`), or raises a StatusError.
"""
