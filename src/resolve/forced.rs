//! The three layers of a node's settings, and the one name that each directive goes by.
//! Never checks a value: what Valkey does not take, Valkey refuses.

use std::collections::BTreeMap;

use crate::api::TLS_PATHS;
use crate::model::desired::Sourced;
use crate::model::quantity::Amount;

/// What a user's map may override.
const DEFAULTS: [(&str, &str); 3] = [
    // A first sync starts at once instead of five seconds later: a node holds no data of its own until then.
    ("repl-diskless-sync-delay", "0"),
    // A primary that is told to end hands over to a replica first.
    ("shutdown-on-sigterm", "failover"),
    // A dump is of no use to a pod that is never restarted, and one that fails makes a replica abort.
    ("save", ""),
];

/// What no map may override. The first nine are the published list.
const FORCED: [(&str, &str); 12] = [
    ("cluster-enabled", "yes"),
    ("cluster-node-timeout", "5000"),
    ("cluster-config-file", "/var/lib/valkey/nodes.conf"),
    ("dir", "/var/lib/valkey"),
    ("port", "6379"),
    ("bind", "0.0.0.0"),
    ("protected-mode", "no"),
    ("aclfile", "/etc/valkey/acl/users.acl"),
    ("primaryuser", "_momento_repl"),
    // Valkey would move replicas, and a drained primary, to other shards on its own.
    ("cluster-allow-replica-migration", "no"),
    // 0 would let a replica that never synced win an election with nothing in it.
    ("cluster-replica-validity-factor", "10"),
    // With more, a slot migration reports success and loses writes (claim B of the engine's own bugs).
    ("cluster-databases", "1"),
];

/// What no map may override in a cluster with TLS, over those. The host name is the node's own, and
/// comes with its name.
const FORCED_TLS: [(&str, &str); 6] = [
    ("port", "0"),
    ("tls-port", "6379"),
    ("tls-cluster", "yes"),
    ("tls-replication", "yes"),
    // Clients prove who they are by their passwords.
    ("tls-auth-clients", "no"),
    // The certificate holds names, so that is what clients are to be sent to.
    ("cluster-preferred-endpoint-type", "hostname"),
];

/// It reaches the pod by a file from a Secret, never by an object that a product team can read.
const PASSWORD: &str = "primaryauth";

/// The part of its memory limit that a node fills with data before it evicts or refuses, in hundredths:
/// the rest is for buffers, fragmentation and the copied pages of a fork. Without it the kernel kills the pod.
const MAXMEMORY_PERCENT: u8 = 75;

/// Every second name of a directive: Valkey's own table (`static_configs` in config.c).
const ALIASES: [(&str, &str); 27] = [
    ("aof_rewrite_cpulist", "aof-rewrite-cpulist"),
    ("bgsave_cpulist", "bgsave-cpulist"),
    ("bio_cpulist", "bio-cpulist"),
    ("cluster-slave-no-failover", "cluster-replica-no-failover"),
    (
        "cluster-slave-validity-factor",
        "cluster-replica-validity-factor",
    ),
    ("hash-max-ziplist-entries", "hash-max-listpack-entries"),
    ("hash-max-ziplist-value", "hash-max-listpack-value"),
    ("list-max-ziplist-size", "list-max-listpack-size"),
    ("lua-time-limit", "busy-reply-threshold"),
    ("masterauth", "primaryauth"),
    ("masteruser", "primaryuser"),
    ("min-slaves-max-lag", "min-replicas-max-lag"),
    ("min-slaves-to-write", "min-replicas-to-write"),
    ("repl-ping-slave-period", "repl-ping-replica-period"),
    ("server_cpulist", "server-cpulist"),
    ("slave-announce-ip", "replica-announce-ip"),
    ("slave-announce-port", "replica-announce-port"),
    ("slave-ignore-maxmemory", "replica-ignore-maxmemory"),
    ("slave-lazy-flush", "replica-lazy-flush"),
    ("slave-priority", "replica-priority"),
    ("slave-read-only", "replica-read-only"),
    ("slave-serve-stale-data", "replica-serve-stale-data"),
    ("slaveof", "replicaof"),
    (
        "slowlog-log-slower-than",
        "commandlog-execution-slower-than",
    ),
    ("slowlog-max-len", "commandlog-slow-execution-max-len"),
    ("zset-max-ziplist-entries", "zset-max-listpack-entries"),
    ("zset-max-ziplist-value", "zset-max-listpack-value"),
];

/// The one name of a directive: small letters, and the newer of two spellings. Valkey compares names without
/// case and knows some by two, so only by this name can a forced setting be told from a user's.
pub(super) fn canonical(directive: &str) -> String {
    let lower = directive.to_ascii_lowercase();
    match ALIASES.iter().find(|(alias, _)| *alias == lower) {
        Some((_, name)) => (*name).to_owned(),
        None => lower,
    }
}

/// Our defaults, over them the user's settings (by canonical names), over them what is forced.
pub(super) fn layers(
    memory: Option<&str>,
    user: &BTreeMap<String, Sourced<String>>,
    tls: bool,
) -> BTreeMap<String, String> {
    let own = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let maxmemory = memory
        .and_then(Amount::parse)
        .and_then(|a| a.percent(MAXMEMORY_PERCENT));
    let mut settings: BTreeMap<String, String> = DEFAULTS.into_iter().map(own).collect();
    settings.extend(maxmemory.map(|bytes| ("maxmemory".to_owned(), bytes.to_string())));
    settings.extend(
        user.iter()
            .map(|(name, set)| (name.clone(), set.value.clone())),
    );
    settings.extend(FORCED.into_iter().map(own));
    if tls {
        settings.extend(FORCED_TLS.into_iter().chain(TLS_PATHS).map(own));
    }
    settings.remove(PASSWORD);
    settings
}
