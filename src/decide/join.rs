//! The steps by which a node becomes a replica of its shard's primary: known, attached, synced,
//! counted. Never makes a node and never takes one away.

use crate::api::node::{JoinType, Lifecycle};
use crate::decide::bootstrap::not_answering;
use crate::decide::ladder::Scene;
use crate::model::decision::{Action, Verdict};
use crate::model::shards::{Answer, Topology};
use crate::model::topology::{Member, NodeView};
use crate::model::why::Why;
use crate::model::world::{NodeFacts, World};

/// The next step of a node towards its primary, which owns slots; Pass where it is its linked replica
/// already, or is the primary itself.
pub(super) fn replica(topology: &Topology<'_>, primary: Answer<'_>, node: &NodeFacts) -> Verdict {
    if node.name == primary.node.name {
        // A replica that was promoted before it was counted; a fresh primary has its own end.
        return if node.join == Some(JoinType::Primary) {
            Verdict::Pass
        } else {
            counted(node)
        };
    }
    if let Some(why) = not_answering(node) {
        return Verdict::Hold(why);
    }
    let Some(answer) = topology.answer(node) else {
        return Verdict::Hold(Why::PodStarting(node.name.clone()));
    };
    match met(primary, answer) {
        Verdict::Pass => {}
        verdict @ (Verdict::Take(_, _) | Verdict::Hold(_)) => return verdict,
    }
    if answer.view.primary() != Some(&primary.view.id) {
        return attached(topology, primary, answer);
    }
    if !answer.is_linked() {
        return Verdict::Hold(Why::NotLinked(node.name.clone()));
    }
    if is_known_by_all(topology, answer) {
        return counted(node);
    }
    if is_stale_to_any(topology, primary, answer) {
        return epoch_raised(primary.node);
    }
    Verdict::Hold(Why::NotKnownByAll(node.name.clone()))
}

/// Whether a member ignores what a replica says, and will for ever: it knows it as a primary of a greater epoch than
/// the shard's (`Ignore stale message` in `cluster_legacy.c`). So it does where the shutdown of a primary had one
/// replica elected while another took over.
fn is_stale_to_any(topology: &Topology<'_>, primary: Answer<'_>, replica: Answer<'_>) -> bool {
    let views = topology.answers.iter().map(|answer| answer.view);
    let mut rows = views.filter_map(|view| view.member(&replica.view.id));
    rows.any(|row| row.flags.primary && row.epoch > primary.view.my_epoch)
}

/// Whether every member knows a newcomer for what it is. One that does not gives it no vote, so that
/// a failover would time out, and sends no client to it.
pub(super) fn is_known_by_all(topology: &Topology<'_>, newcomer: Answer<'_>) -> bool {
    let joining = |answer: &Answer<'_>| answer.node.spec.lifecycle == Lifecycle::Joining;
    let members = topology.answers.iter().filter(|answer| {
        let own = answer.node.name == newcomer.node.name;
        !own && !joining(answer) && !answer.node.is_departing()
    });
    let mut rows = members.map(|answer| answer.view.member(&newcomer.view.id));
    rows.all(|row| {
        row.is_some_and(|row| {
            !row.flags.handshake && row.primary.as_ref() == newcomer.view.primary()
        })
    })
}

/// A newcomer that another cluster met, and nobody of ours yet, is replaced: met here too, it would make one cluster of
/// both. Its pod got the address of a member that died there, and Valkey meets anew whom it has lost touch with
/// (`there is no inbound link for it`, `cluster_legacy.c`).
pub(super) fn newcomers_apart(scene: Scene<'_>) -> Verdict {
    for newcomer in &scene.topology.answers {
        let node = newcomer.node;
        let joins = node.spec.lifecycle == Lifecycle::Joining && !node.deleting;
        let is_empty = newcomer.view.own_slots().is_empty() && newcomer.view.primary().is_none();
        if !joins || !is_empty || is_met(scene, newcomer) {
            continue;
        }
        let mut rows = newcomer.view.members.iter();
        if let Some(stranger) = rows.find(|row| is_elsewhere(scene, newcomer, row)) {
            let (node, member) = (node.name.clone(), stranger.id.clone());
            let action = Action::DeleteNode(node.clone());
            return Verdict::Take(action, Why::MetElsewhere { node, member });
        }
    }
    Verdict::Pass
}

fn is_met(scene: Scene<'_>, newcomer: &Answer<'_>) -> bool {
    let mut rows = others(scene, newcomer).filter_map(|other| other.member(&newcomer.view.id));
    rows.any(|row| !row.flags.handshake)
}

/// Whether somebody in a newcomer's table lives and is nobody of ours: no pod has its address, and no other member
/// lists its id or its address.
fn is_elsewhere(scene: Scene<'_>, newcomer: &Answer<'_>, row: &Member) -> bool {
    if row.flags.myself || row.flags.failing() || row.ip.is_none() {
        return false;
    }
    let World { nodes, strays, .. } = scene.world;
    let mut pods = (nodes.values().chain(strays.values())).filter_map(NodeFacts::stamped_pod);
    let mut listed = others(scene, newcomer).flat_map(|other| &other.members);
    !pods.any(|pod| pod.ip == row.ip)
        && !listed.any(|known| known.id == row.id || known.ip == row.ip)
}

/// What all others that answer say.
fn others<'a>(scene: Scene<'a>, one: &Answer<'a>) -> impl Iterator<Item = &'a NodeView> {
    let own = one.node;
    let answers = scene.topology.answers.iter();
    answers
        .filter(move |other| other.node.name != own.name)
        .map(|other| other.view)
}

/// Introduced to the others through a member that knows them.
pub(super) fn met(seed: Answer<'_>, newcomer: Answer<'_>) -> Verdict {
    if seed.node.name == newcomer.node.name {
        return Verdict::Pass;
    }
    let row = seed.view.member(&newcomer.view.id);
    if row.is_some_and(|row| !row.flags.handshake) {
        return Verdict::Pass;
    }
    let address = newcomer.node.stamped_pod().and_then(|pod| pod.ip);
    let mut rows = seed.view.members.iter();
    if rows.any(|row| row.flags.handshake && row.ip == address) {
        return Verdict::Hold(Why::Handshaking(newcomer.node.name.clone()));
    }
    let (seed, newcomer) = (seed.node.name.clone(), newcomer.node.name.clone());
    let why = Why::NotMet {
        seed: seed.clone(),
        newcomer: newcomer.clone(),
    };
    Verdict::Take(Action::Meet { seed, newcomer }, why)
}

fn attached(topology: &Topology<'_>, primary: Answer<'_>, answer: Answer<'_>) -> Verdict {
    // It owns slots that have to be moved first.
    let second = |(owner, _): &(Answer<'_>, _)| owner.node.name == answer.node.name;
    if topology.second_owners.iter().any(second) {
        return Verdict::Pass;
    }
    let (replica, primary_name) = (answer.node.name.clone(), primary.node.name.clone());
    if !knows_what_it_inherits(primary, answer) {
        return Verdict::Hold(Why::PrimaryUnknown {
            replica,
            primary: primary_name,
        });
    }
    let why = Why::NotAttached {
        replica: replica.clone(),
        primary: primary_name.clone(),
    };
    let action = Action::Replicate {
        replica,
        primary: primary_name,
    };
    Verdict::Take(action, why)
}

/// Whether a newcomer knows its primary, and that it owns slots: one that takes over gets those that its own table
/// gives to its primary, and no others.
fn knows_what_it_inherits(primary: Answer<'_>, newcomer: Answer<'_>) -> bool {
    let id = &primary.view.id;
    let told = newcomer
        .view
        .member(id)
        .is_some_and(|row| !row.slots.is_empty());
    newcomer.view.knows_primary(id) && (told || primary.view.own_slots().is_empty())
}

/// Its claims are made to win against all others.
pub(super) fn epoch_raised(primary: &NodeFacts) -> Verdict {
    let name = primary.name.clone();
    Verdict::Take(Action::BumpEpoch(name.clone()), Why::EpochLow(name))
}

/// Its lifecycle says that it is a full member.
pub(super) fn counted(node: &NodeFacts) -> Verdict {
    if node.spec.lifecycle == Lifecycle::Joining {
        let name = node.name.clone();
        Verdict::Take(Action::CompleteJoin(name.clone()), Why::Joined(name))
    } else {
        Verdict::Pass
    }
}

/// The first Take of many questions, else the first Hold: one node's wait stops no other's repair.
pub(super) fn first(verdicts: impl Iterator<Item = Verdict>) -> Verdict {
    let mut hold = Verdict::Pass;
    for verdict in verdicts {
        match verdict {
            Verdict::Take(_, _) => return verdict,
            Verdict::Hold(_) if hold == Verdict::Pass => hold = verdict,
            Verdict::Hold(_) | Verdict::Pass => {}
        }
    }
    hold
}
