"""Control loops over the store: what kube-controller-manager, the scheduler and the kubelets do for a real cluster.

`engine` is the queue they all share, `routing` says who looks at what when something changes and puts them together. Each loop
has its own module and reads the store afresh at every sync. `rollouts`, `podstatus`, `probes` and `containers` are the parts
without any I/O.
"""
