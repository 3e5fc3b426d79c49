//! What a person makes of a reason: its public name, whose it is, how grave, and what to do.
//! Never decides anything.

use crate::model::desired::MenuError;
use crate::model::name::NodeName;
use crate::model::why::Why;
use crate::model::world::CONTAINER_EXITED;

impl Why {
    /// Its public name, in `CamelCase`: the reason of an Event and the label of a metric.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.into()
    }

    /// Whether nothing but a hand ends it: it is told at once, where other waits are told only if
    /// they last.
    #[must_use]
    pub fn needs_a_hand(&self) -> bool {
        matches!(
            self,
            Self::Paused
                | Self::NameTaken { .. }
                | Self::PasswordsLost
                | Self::Menu(_)
                | Self::TlsInvalid(_)
                | Self::TlsUnusable { .. }
                | Self::TlsLapsed { .. }
                | Self::Unschedulable { .. }
                | Self::PodForeign(_)
                | Self::ConfigMapForeign(_)
                | Self::MigrationFailed { .. }
                | Self::DrainTooLarge { .. }
                | Self::AclRefused(_)
                | Self::NodesLeaving {
                    holder: Some(_),
                    ..
                }
                | Self::Inconsistent(_)
        )
    }

    /// Whether it is a failure, and not a part of what was asked for: its Event is a Warning.
    #[must_use]
    pub fn is_trouble(&self) -> bool {
        let blow = matches!(
            self,
            Self::NodeDied { .. }
                | Self::NodeEnded { .. }
                | Self::JoinEnded { .. }
                | Self::PodWaiting { .. }
                | Self::Silent { .. }
                | Self::ForeignMember(_)
                | Self::MetElsewhere { .. }
                | Self::AwaitingElection { .. }
                | Self::NoQuorum(_)
                | Self::SlotsClaimedTwice(_)
                | Self::PrimaryUnproven(_)
                | Self::ElectionLost(_)
                | Self::NeverSynced(_)
                | Self::Hung(_)
        );
        blow || self.is_loss() || (self.needs_a_hand() && !matches!(self, Self::Paused))
    }

    /// What a person can do about it, where that is not plain from its sentence.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one line a reason")]
    pub fn remedy(&self) -> Option<&'static str> {
        let remedy = match self {
            Self::Paused => "remove annotation valkey.gomomento.com/paused to go on",
            Self::Menu(error) => menu_remedy(error),
            Self::TlsInvalid(_) => "correct the Secret: it is read again every few seconds",
            Self::TlsUnusable { .. } => {
                "replace what the Secret holds; nodes go on with what they have"
            }
            Self::TlsLapsed { .. } => "renew the certificate",
            Self::Unschedulable { .. } => {
                "make room, or change resources, placement or tolerations"
            }
            Self::PodWaiting { .. } => "see the pod's own events",
            Self::Silent { .. } => "see the pod's log, and the network between it and the operator",
            Self::ForeignMember(_) => "reset it where it runs if it should not be there",
            Self::ShardLost { .. } | Self::ClusterLost => "load the data again from where it came",
            Self::PrimaryUnproven(_) => {
                "a process that hangs is given up after a minute if a replica has its data; else delete the pod, which loses them; if its machine is lost for good, delete the Node object"
            }
            Self::MigrationFailed { .. } => {
                "see Valkey's reason; a renamed or missing command makes every migration fail"
            }
            Self::DrainTooLarge { .. } => "give the nodes more memory, or keep more shards",
            Self::AclRefused(_) => "correct the ValkeyRole that it names",
            Self::Inconsistent(_) => "report it with the operator's log",
            Self::NodesLeaving {
                holder: Some(_), ..
            } => "whoever put it there has to remove it: see metadata.finalizers of the ValkeyNode",
            Self::NodeDied { detail, .. } | Self::JoinEnded { detail, .. }
                if has_last_words(detail) =>
            {
                "it is made anew; if that ends too, correct what its last words name"
            }
            Self::PodStarting(_) => {
                "if it lasts, see the events of its Pod and of its ValkeyNode, and whether its machine reports"
            }
            Self::Deleting
            | Self::NodesLeaving { holder: None, .. }
            | Self::NodeDied { .. }
            | Self::JoinEnded { .. }
            | Self::NothingLeft
            | Self::NotYetOurs
            | Self::NameTaken { .. }
            | Self::PasswordsLost
            | Self::TlsValid
            | Self::NoSnapshot
            | Self::ShardShort { .. }
            | Self::ShardOver { .. }
            | Self::PodForeign(_)
            | Self::ConfigMapForeign(_)
            | Self::NotMet { .. }
            | Self::Handshaking(_)
            | Self::MetElsewhere { .. }
            | Self::StaleMember(_)
            | Self::MemberUnclear(_)
            | Self::AwaitingElection { .. }
            | Self::NoQuorum(_)
            | Self::SlotsUnassigned(_)
            | Self::SlotsDisagree { .. }
            | Self::SlotsClaimedTwice(_)
            | Self::SlotsAstray(_)
            | Self::NotAttached { .. }
            | Self::PrimaryUnknown { .. }
            | Self::NotLinked(_)
            | Self::StateNotOk(_)
            | Self::TableDiffers { .. }
            | Self::ShardCount { .. }
            | Self::ElectionLost(_)
            | Self::NeverSynced(_)
            | Self::PrimaryMissing(_)
            | Self::SlotsOrphaned(_)
            | Self::EpochLow(_)
            | Self::PrimaryLeaving(_)
            | Self::MemberDead(_)
            | Self::NodeEnded { .. }
            | Self::Hung(_)
            | Self::Survivor(_)
            | Self::JoinOutdated(_)
            | Self::Joined(_)
            | Self::NotKnownByAll(_)
            | Self::ShardLeaving(_)
            | Self::ShardsFew { .. }
            | Self::Unbalanced { .. }
            | Self::Migrating(_)
            | Self::TargetUnready(_)
            | Self::Outdated(_)
            | Self::Lagging(_)
            | Self::FailingOver(_)
            | Self::ShardLarge { .. }
            | Self::Formed
            | Self::NodeStep(_) => return None,
        };
        Some(remedy)
    }

    /// A sentence that tells it, with what a person can do.
    #[must_use]
    pub fn advised(&self, sentence: &str) -> String {
        match self.remedy() {
            Some(remedy) => format!("{sentence} ({remedy})"),
            None => sentence.to_owned(),
        }
    }

    /// The node that it is about, if it is about one.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one line a reason")]
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::PodForeign(node)
            | Self::ConfigMapForeign(node)
            | Self::PodStarting(node)
            | Self::Handshaking(node)
            | Self::SlotsAstray(node)
            | Self::NotLinked(node)
            | Self::StateNotOk(node)
            | Self::NeverSynced(node)
            | Self::EpochLow(node)
            | Self::PrimaryLeaving(node)
            | Self::Hung(node)
            | Self::Survivor(node)
            | Self::JoinOutdated(node)
            | Self::Joined(node)
            | Self::NotKnownByAll(node)
            | Self::Migrating(node)
            | Self::TargetUnready(node)
            | Self::Outdated(node)
            | Self::Lagging(node)
            | Self::FailingOver(node)
            | Self::NodeDied { node, .. }
            | Self::Unschedulable { node, .. }
            | Self::PodWaiting { node, .. }
            | Self::Silent { node, .. }
            | Self::NotMet { newcomer: node, .. }
            | Self::AwaitingElection { replica: node, .. }
            | Self::NotAttached { replica: node, .. }
            | Self::PrimaryUnknown { replica: node, .. }
            | Self::TableDiffers { node, .. }
            | Self::NodeEnded { node, .. }
            | Self::JoinEnded { node, .. }
            | Self::MetElsewhere { node, .. }
            | Self::NodesLeaving { node, .. }
            | Self::MigrationFailed { source: node, .. } => Some(node),
            Self::Deleting
            | Self::NothingLeft
            | Self::NotYetOurs
            | Self::Paused
            | Self::NameTaken { .. }
            | Self::PasswordsLost
            | Self::Menu(_)
            | Self::TlsInvalid(_)
            | Self::TlsValid
            | Self::TlsUnusable { .. }
            | Self::TlsLapsed { .. }
            | Self::NoSnapshot
            | Self::ShardShort { .. }
            | Self::ShardOver { .. }
            | Self::StaleMember(_)
            | Self::ForeignMember(_)
            | Self::MemberUnclear(_)
            | Self::NoQuorum(_)
            | Self::SlotsUnassigned(_)
            | Self::SlotsDisagree { .. }
            | Self::SlotsClaimedTwice(_)
            | Self::ShardCount { .. }
            | Self::PrimaryUnproven(_)
            | Self::ElectionLost(_)
            | Self::ShardLost { .. }
            | Self::ClusterLost
            | Self::PrimaryMissing(_)
            | Self::SlotsOrphaned(_)
            | Self::MemberDead(_)
            | Self::ShardLeaving(_)
            | Self::ShardsFew { .. }
            | Self::Unbalanced { .. }
            | Self::DrainTooLarge { .. }
            | Self::AclRefused(_)
            | Self::ShardLarge { .. }
            | Self::Formed
            | Self::Inconsistent(_)
            | Self::NodeStep(_) => None,
        }
    }
}

/// Whether an end is told in the words of the process: they follow the code and the reason.
fn has_last_words(detail: &str) -> bool {
    let end = detail.strip_prefix(CONTAINER_EXITED);
    end.is_some_and(|end| end.contains(": "))
}

fn menu_remedy(error: &MenuError) -> &'static str {
    match error {
        MenuError::ConfigNotFound(_) => "create it, or name another in configRef or baseRef",
        MenuError::ImageNotFound(_) => "create it, or name another in imageRef",
        MenuError::NoImage(_) => "set imageRef in a config of the chain",
        MenuError::TooDeep => "shorten the chain of baseRef",
        MenuError::RoleNotFound { .. } => "create it, or name another in roleRef",
        MenuError::DuplicateUser(_) => "bind it in the config or in the cluster, not in both",
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantNames as _;

    use super::*;

    #[test]
    fn names_fit_the_reason_of_an_event() {
        for name in Why::VARIANTS {
            let letters = name.chars().all(|letter| letter.is_ascii_alphanumeric());
            assert!(letters && name.len() <= 128, "{name}");
        }
        assert_eq!(Why::Paused.name(), "Paused");
    }

    #[test]
    fn a_pause_is_no_failure_and_lost_data_is_one() {
        assert!(!Why::Paused.is_trouble());
        assert!(Why::Paused.needs_a_hand());
        assert!(Why::ClusterLost.is_trouble());
        assert!(!Why::Formed.is_trouble());
    }

    #[test]
    fn a_deletion_that_somebody_holds_needs_a_hand() {
        let leaving = |holder: Option<&str>| Why::NodesLeaving {
            node: NodeName::new("a"),
            count: 1,
            holder: holder.map(str::to_owned),
        };
        let held = leaving(Some("example.com/backup"));
        assert!(held.needs_a_hand() && held.is_trouble());
        assert!(!leaving(None).needs_a_hand() && !leaving(None).is_trouble());
    }

    #[test]
    fn last_words_are_spoken_of_where_there_are_such() {
        let died = |detail: &str| Why::NodeDied {
            node: NodeName::new("a"),
            detail: detail.to_owned(),
        };
        let spoken = died("its container exited with code 1 (Error): Bad directive");
        assert!(spoken.remedy().is_some());
        for detail in [
            "its container exited with code 137 (OOMKilled)",
            "its pod ended (Evicted): The node was low on resource: memory.",
            "its machine is gone",
        ] {
            assert_eq!(died(detail).remedy(), None, "{detail}");
        }
    }
}
