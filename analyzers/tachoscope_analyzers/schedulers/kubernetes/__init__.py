"""Objects of Kubernetes: pods, jobs, events, and what Kueue, Volcano, Kubeflow and JobSet make of them."""
