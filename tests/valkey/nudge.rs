//! What it gains that an owner of new slots meets everybody once more.
//! Never asks more than a ratio of one run: the times themselves are the machine's.

use std::time::Duration;
use std::time::Instant;

use operator::model::slots::SlotRange;
use operator::valkey::client::Connector;
use operator::valkey::client::Target;

use crate::servers::PORT;
use crate::servers::Server;
use crate::servers::all_see;
use crate::servers::nothing_was_denied;
use crate::servers::password;

/// Claims with the nudge, and as many without, in turn.
const ROUNDS: u32 = 3;

#[tokio::test]
async fn a_claim_is_known_much_sooner_when_its_owner_meets_everybody() {
    let connector = Connector::new(PORT);
    let password = password();
    let servers: Vec<Server> = (0..6).map(|_| Server::start()).collect();
    let target = |server: &Server| Target::operator(server.ip(), &password);
    for server in &servers[1..] {
        let met = connector.meet(&target(&servers[0]), server.ip()).await;
        met.unwrap();
    }
    all_see("every member", &connector, &servers, |view| {
        let known = |member: &operator::model::topology::Member| {
            !member.flags.handshake && member.connected
        };
        view.members.len() == servers.len() && view.members.iter().all(known)
    })
    .await;

    let mut took = [Duration::ZERO; 2];
    let mut claimed = 0;
    for round in 0..2 * ROUNDS {
        let nudge = round % 2 == 1;
        let begin = Instant::now();
        for (owner, server) in (0..3).zip(&servers) {
            let piece = SlotRange::share(3 * round + owner, 3 * 2 * ROUNDS).unwrap();
            let owner = target(server);
            connector.add_slots(&owner, piece).await.unwrap();
            claimed += piece.count();
            for other in servers.iter().filter(|to| nudge && to.ip() != server.ip()) {
                connector.meet(&owner, other.ip()).await.unwrap();
            }
        }
        all_see("every claim", &connector, &servers, |view| {
            view.slots_assigned == claimed
        })
        .await;
        took[usize::from(nudge)] += begin.elapsed();
    }
    let [plain, nudged] = took.map(|took| took / ROUNDS);
    println!("all agreed {nudged:?} after a claim with the nudge, {plain:?} without");
    assert!(nudged * 2 < plain, "{nudged:?} and {plain:?}");
    nothing_was_denied(&servers);
}
