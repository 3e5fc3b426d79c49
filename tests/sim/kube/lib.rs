//! A Kubernetes that misbehaves on request: API server, scheduler, kubelets and garbage collector.
//! Never validates a schema: objects come valid, or deliberately past it.
