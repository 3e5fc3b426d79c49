//! The log messages that people search for, in one list for the fast suite and for the slow one.
//! Never those that nobody was promised.

/// When it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// In a bootstrap and its waits.
    Bootstrap,
    /// In the life of a cluster after it.
    Life,
}

/// Each promised message.
pub(crate) const PROMISED: [(&str, Moment); 15] = [
    ("creating Pod for node", Moment::Bootstrap),
    ("creating headless Service", Moment::Bootstrap),
    ("cluster meet issued", Moment::Bootstrap),
    ("cluster formed, transitioning to Active", Moment::Bootstrap),
    (
        "bootstrap blocked: pod cannot be scheduled",
        Moment::Bootstrap,
    ),
    ("active tick", Moment::Bootstrap),
    ("ACL reconcile tick", Moment::Bootstrap),
    ("TLS reconcile tick", Moment::Bootstrap),
    ("ACL LOAD failed, will retry next tick", Moment::Bootstrap),
    ("reconcile error, requeuing", Moment::Bootstrap),
    (
        "primary unhealthy but replicas exist, waiting for auto-failover",
        Moment::Life,
    ),
    ("no quorum — issued TAKEOVER on replica", Moment::Life),
    (
        "failover to up-to-date replica for rolling upgrade",
        Moment::Life,
    ),
    ("completed join", Moment::Life),
    (
        "TLS Secret validation failed, setting cluster Invalid",
        Moment::Life,
    ),
];
