//! Two clusters of one name where addresses are scarce: one breaks and stays broken, and the other's new pods get its
//! addresses, under writers. ALL=1.
//! Never asks the operator whose process is at an address: each process says so itself.

use std::collections::BTreeSet;

use serde_json::json;

use crate::living::Living;
use crate::living::config;
use crate::living::manifest;
use crate::living::rolled;
use crate::stage::say;
use crate::thorough;
use crate::world::Formed;
use crate::world::Wanted;
use crate::world::World;
use crate::world::menu;

/// On each of three machines: four for the pods of both clusters, one for the operator's, and three that are free.
const ADDRESSES: u8 = 8;

const GOOD: Wanted<'_> = Wanted {
    namespace: "good",
    name: "c",
    shards: 3,
    replicas: 1,
};

const BROKEN: Wanted<'_> = Wanted {
    namespace: "broken",
    ..GOOD
};

#[test]
fn a_broken_neighbour_leaves_its_addresses_and_nothing_else() {
    if !thorough("a_broken_neighbour_leaves_its_addresses_and_nothing_else") {
        return;
    }
    let world = World::with_pod_addresses(ADDRESSES);
    let mut good = Living::born(&world, &GOOD);
    let broken = born(&world);
    let before = places(&good.formed);
    let mut good_ids = ids(&good.formed);

    good.planned("a roll beside one that breaks", &GOOD, |_| {
        break_down(&world, &broken);
        config(&world, GOOD.namespace, "11");
        wait_until_rolled(&world);
    });
    good_ids.extend(ids(&good.formed));
    let taken = &places(&good.formed) & &places(&broken);
    assert!(!taken.is_empty(), "no address of {broken:?} was taken");

    let mut mended = BTreeSet::new();
    good.planned("the other is put right", &GOOD, |_| {
        config(&world, BROKEN.namespace, "10");
        let formed = world.wait_until_formed(&BROKEN);
        mended = ids(&formed);
        let returned = &places(&formed) & &before;
        say(&format!(
            "addresses changed hands: {taken:?} and {returned:?}"
        ));
    });
    // Each table held exactly its own members' ids; so it is enough that no id was in both.
    mended.extend(ids(&broken));
    assert!(good_ids.is_disjoint(&mended), "{good_ids:?} {mended:?}");
    good.judged(world.log().expect("the log"));
}

fn born(world: &World) -> Formed {
    world.namespace(BROKEN.namespace);
    config(world, BROKEN.namespace, "10");
    world.apply_all(&[manifest(&BROKEN)]);
    world.wait_until_formed(&BROKEN)
}

/// Ends all its processes but one, which goes on asking for the others where they were, and lets no new one run.
fn break_down(world: &World, broken: &Formed) {
    let setting = json!({"baseRef": "standard", "valkey": {"no-such": "1"}});
    world.apply_all(&[menu("ValkeyConfig", BROKEN.namespace, &setting)]);
    let mut words = vec![
        "delete",
        "pod",
        "--namespace",
        BROKEN.namespace,
        "--grace-period=0",
        "--force",
    ];
    let (_, dying) = broken.pods.split_first().expect("pods");
    let names = dying
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().expect("a name"));
    words.extend(names);
    world.stage.kubectl(words);
}

/// Waits until each node of the good one was made anew; it serves all the while.
fn wait_until_rolled(world: &World) {
    world.until("the good one is rolled", GOOD.namespace, || {
        let cluster = world.cluster(GOOD.namespace, GOOD.name)?;
        assert_eq!(cluster["status"]["state"], "Active");
        rolled(world, GOOD.namespace, "11")
    });
}

fn ids(formed: &Formed) -> BTreeSet<String> {
    let ids = formed.ids().into_iter();
    ids.map(str::to_owned).collect()
}

fn places(formed: &Formed) -> BTreeSet<String> {
    let members = formed.members.iter();
    members.map(|member| member.ip.clone()).collect()
}
