//! Valkey clusters on Kubernetes.
