//! Config chains: random graphs of configs, images and roles, resolved by the contract's words a second
//! time. Never a server: the menu is plain data.

use std::collections::BTreeMap;

use operator::model::desired::Resolved;
use operator::model::name::ClusterRef;
use operator::model::name::Uid;
use operator::model::world::ClusterFacts;
use operator::model::world::Kept;
use operator::model::world::Menu;
use operator::model::world::World;
use operator::resolve;
use serde_json::Map;
use serde_json::Value;
use serde_json::json;

use super::dice::Dice;
use super::same;

/// A world with these configs, one image `i` and a cluster that selects a config.
pub(super) fn world(configs: &Value, selected: &str) -> World {
    let spec = json!({ "configRef": selected, "shards": 3, "replicasPerShard": 1 });
    let image = json!({ "i": { "repository": "r", "tag": "t", "version": "v" } });
    World {
        now: 0,
        cluster: ClusterFacts {
            key: ClusterRef {
                namespace: "ns".to_owned(),
                name: "k".to_owned(),
            },
            uid: Uid::new("u"),
            spec: serde_json::from_value(spec).expect("a spec"),
            status: serde_json::from_value(json!({})).expect("a status"),
            deleting: false,
            finalizer: true,
            paused: false,
        },
        menu: Menu {
            configs: serde_json::from_value(configs.clone()).expect("configs"),
            images: serde_json::from_value(image).expect("images"),
            roles: BTreeMap::new(),
        },
        kept: Kept::default(),
        tls_secret: None,
        nodes: BTreeMap::new(),
        strays: BTreeMap::new(),
        acl_refusal: None,
        default_zone_spread: serde_json::from_value(json!("bestEffort")).expect("a spread"),
    }
}

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    let configs = configs(dice);
    let selected = config_name(dice);
    let roles: Vec<&str> = dice.some(&["r", "s"], 2);
    let bound = bindings(dice);
    let mut world = world(&Value::Object(configs.clone()), &selected);
    offer(&mut world, &roles, &bound);
    let found = resolve::desired(&world).menu;
    let found = found
        .map(|resolved| plain(&resolved))
        .map_err(|error| error.to_string());
    let wish = expected(&configs, &selected, &roles, &bound);
    let what = format!("{selected} of {configs:?} with {bound:?}");
    same(&what, &found, &wish)
}

/// Adds an image `j`, roles, and the cluster's own bindings.
fn offer(world: &mut World, roles: &[&str], bound: &[Value]) {
    let image = json!({ "repository": "s", "tag": "u", "version": "v" });
    let image = serde_json::from_value(image).expect("an image");
    world.menu.images.insert("j".to_owned(), image);
    for role in roles {
        let spec = serde_json::from_value(json!({})).expect("a role");
        world.menu.roles.insert((*role).to_owned(), spec);
    }
    world.cluster.spec.acl = serde_json::from_value(json!(bound)).expect("bindings");
}

/// The parts that a chain decides.
fn plain(resolved: &Resolved) -> Value {
    let settings: BTreeMap<&String, &String> = resolved
        .user_settings
        .iter()
        .map(|(name, set)| (name, &set.value))
        .collect();
    let users: Vec<&String> = resolved
        .users
        .iter()
        .map(|user| &user.binding.username)
        .collect();
    json!({
        "image": resolved.image.value,
        "cpu": resolved.cpu.as_ref().map(|cpu| &cpu.value),
        "memory": resolved.memory.as_ref().map(|memory| &memory.value),
        "valkey": settings,
        "users": users,
        "tolerations": resolved.tolerations.len(),
        "priority": resolved.priority_class,
    })
}

/// What the contract says of these configs.
fn expected(
    configs: &Map<String, Value>,
    selected: &str,
    roles: &[&str],
    bound: &[Value],
) -> Result<Value, String> {
    let mut chain: Vec<&Value> = Vec::new();
    let mut name = selected.to_owned();
    let last = loop {
        if chain.len() >= 10 {
            return Err("config inheritance depth exceeds 10 (cycle?)".to_owned());
        }
        let config = configs.get(&name);
        chain.push(config.ok_or_else(|| format!("ValkeyConfig {name:?} not found"))?);
        match chain[chain.len() - 1]["baseRef"].as_str() {
            Some(base) => base.clone_into(&mut name),
            None => break name,
        }
    };
    let first = |path: &str| {
        let values = chain.iter().map(|config| config.pointer(path));
        values.flatten().next().cloned().unwrap_or_default()
    };
    let image = match first("/imageRef").as_str() {
        None => return Err(format!("no image_ref in config chain ending at {last:?}")),
        Some("i") => "r:t",
        Some("j") => "s:u",
        Some(image) => return Err(format!("ValkeyImage {image:?} not found")),
    };
    let mut settings: BTreeMap<String, Value> = BTreeMap::new();
    for config in &chain {
        for (name, value) in config["valkey"].as_object().into_iter().flatten() {
            settings
                .entry(name.clone())
                .or_insert_with(|| value.clone());
        }
    }
    let of_config = first("/acl").as_array().cloned().unwrap_or_default();
    let bindings: Vec<&Value> = of_config.iter().chain(bound).collect();
    let users: Vec<&str> = bindings
        .iter()
        .filter_map(|one| one["username"].as_str())
        .collect();
    for (index, user) in users.iter().enumerate() {
        if users[..index].contains(user) {
            return Err(format!(
                "duplicate username {user:?} in merged ACL bindings"
            ));
        }
    }
    for binding in &bindings {
        for permission in binding["permissions"].as_array().into_iter().flatten() {
            let role = permission["roleRef"].as_str().unwrap_or_default();
            if !roles.contains(&role) {
                let user = &binding["username"];
                return Err(format!(
                    "ValkeyRole {role:?} not found (referenced by user {user})"
                ));
            }
        }
    }
    let tolerations = first("/scheduling/tolerations")
        .as_array()
        .map_or(0, Vec::len);
    Ok(json!({
        "image": image,
        "cpu": first("/resources/cpu"),
        "memory": first("/resources/memory"),
        "valkey": settings,
        "users": users,
        "tolerations": tolerations,
        "priority": first("/scheduling/priorityClassName"),
    }))
}

/// Configs `c0` to `c13`, some missing; mostly a line, with circles and gaps.
fn configs(dice: &mut Dice) -> Map<String, Value> {
    let mut configs = Map::new();
    for index in 0..14 {
        if !dice.once_in(12) {
            configs.insert(format!("c{index}"), config(index, dice));
        }
    }
    configs
}

fn config_name(dice: &mut Dice) -> String {
    format!("c{}", dice.below(14))
}

fn config(index: usize, dice: &mut Dice) -> Value {
    let mut config = json!({});
    match dice.below(8) {
        0 => {}
        1 => config["baseRef"] = json!(config_name(dice)),
        _ => config["baseRef"] = json!(format!("c{}", index + 1)),
    }
    if dice.once_in(4) {
        config["imageRef"] = json!(dice.of(&["i", "i", "j", "missing"]));
    }
    if dice.once_in(3) {
        config["resources"] = match dice.below(4) {
            0 => json!({}),
            1 => json!({ "cpu": "1", "memory": "1Gi" }),
            2 => json!({ "cpu": "500m" }),
            _ => json!({ "memory": "2Gi" }),
        };
    }
    for name in ["hz", "save", "maxmemory-policy"] {
        if dice.once_in(4) {
            config["valkey"][name] = json!(dice.below(1000).to_string());
        }
    }
    if dice.once_in(5) {
        config["acl"] = json!(bindings(dice));
    }
    if dice.once_in(5) {
        let tolerations = vec![json!({ "operator": "Exists" }); dice.below(3)];
        config["scheduling"] = json!({ "tolerations": tolerations });
    }
    if dice.once_in(5) {
        config["scheduling"]["priorityClassName"] = json!(dice.of(&["high", "low"]));
    }
    config
}

/// Bindings with usernames that differ, as the schema wants within one list.
fn bindings(dice: &mut Dice) -> Vec<Value> {
    let names: Vec<&str> = dice.some(&["ann", "bob", "cid", "dot"], 5);
    let binding = |name: &str, role: &str| {
        json!({
            "username": name,
            "passwordHashes": ["a".repeat(64)],
            "permissions": [{ "roleRef": role, "keys": [] }],
        })
    };
    names
        .into_iter()
        .map(|name| {
            let role = *dice.of(&["r", "r", "s"]);
            binding(name, role)
        })
        .collect()
}
