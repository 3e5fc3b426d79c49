//! users.acl: every binding gives exactly the rights that it names, read as Valkey reads the file.
//! Never a role's meaning: which commands there are, Valkey knows.

use std::collections::BTreeMap;

use operator::api::acl::AclBinding;
use operator::api::role::ValkeyRoleSpec;
use operator::model::desired::Grant;
use operator::model::desired::User;
use operator::model::redacted::Redacted;
use operator::model::world::Auth;
use operator::render::users_acl;
use serde_json::Value;
use serde_json::json;
use sha2::Digest as _;
use sha2::Sha256;

use super::dice::Dice;
use super::dice::alphabet;
use super::hold;
use super::same;
use super::shell;

/// A user as Valkey holds it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Account {
    on: bool,
    nopass: bool,
    hashes: Vec<String>,
    root: Rights,
    selectors: Vec<Rights>,
}

/// What a selector, or a user's root, allows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Rights {
    /// Rules on commands since the last `-@all`, in their order.
    commands: Vec<String>,
    /// Every key, for reading and writing.
    all_keys: bool,
    /// Patterns with what they allow: `RW`, `R`, `W`.
    keys: Vec<(String, String)>,
    all_channels: bool,
    channels: Vec<String>,
}

pub(super) fn form(dice: &mut Dice) -> Result<(), String> {
    let secret = |dice: &mut Dice| Redacted::new(format!("secret{:x}", dice.next()));
    let auth = Auth {
        operator: secret(dice),
        repl: secret(dice),
        finalizer: true,
    };
    let users = users(dice);
    let text = users_acl::text(&users, &auth);
    let told =
        read(&text).map_err(|refusal| format!("Valkey refuses it: {refusal} in {text:?}"))?;
    let mut wish: BTreeMap<String, Account> = users
        .iter()
        .map(|user| (user.binding.username.clone(), account(user)))
        .collect();
    if users.is_empty() {
        wish.insert("default".to_owned(), open());
    } else {
        wish.entry("default".to_owned()).or_default();
    }
    let [operator, repl] = ["_momento_operator", "_momento_repl"];
    same(
        "the operator's hash",
        &told.get(operator).map(hashes),
        &Some(vec![hash(&auth.operator)]),
    )?;
    same(
        "the replicas' hash",
        &told.get(repl).map(hashes),
        &Some(vec![hash(&auth.repl)]),
    )?;
    let own = told
        .get(operator)
        .is_some_and(|own| own.root.keys.is_empty() && !own.root.all_keys);
    hold(own, || format!("the operator may touch keys: {text:?}"))?;
    let last: Vec<&str> = text
        .lines()
        .rev()
        .take(2)
        .filter_map(|line| line.split(' ').nth(1))
        .collect();
    same("the last two users", &last, &vec![repl, operator])?;
    for password in [&auth.operator, &auth.repl] {
        hold(!text.contains(password.expose()), || {
            "a password in clear".to_owned()
        })?;
    }
    let told: BTreeMap<String, Account> = told
        .into_iter()
        .filter(|(name, _)| !name.starts_with("_momento_"))
        .collect();
    same(&format!("{text:?}"), &told, &wish)
}

fn hashes(account: &Account) -> Vec<String> {
    account.hashes.clone()
}

fn hash(password: &Redacted<String>) -> String {
    let digest = Sha256::digest(password.expose().as_bytes());
    digest
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| char::from_digit(u32::from(half), 16))
        .collect()
}

/// What `default` may do where nobody is bound: everything.
fn open() -> Account {
    Account {
        on: true,
        nopass: true,
        root: Rights {
            commands: vec!["+@all".to_owned()],
            all_keys: true,
            all_channels: true,
            ..Rights::default()
        },
        ..Account::default()
    }
}

/// The rights that a binding names.
fn account(user: &User) -> Account {
    let mut rights = user.grants.iter().map(rights);
    Account {
        on: true,
        nopass: false,
        hashes: user.binding.password_hashes.clone(),
        root: rights.next().unwrap_or_default(),
        selectors: rights.collect(),
    }
}

/// By way of JSON, so that the operator's own types say nothing here.
fn rights(grant: &Grant) -> Rights {
    let role = serde_json::to_value(&grant.role).expect("a role is JSON");
    let permission = serde_json::to_value(&grant.permission).expect("a permission is JSON");
    let list = |value: &Value, field: &str| value[field].as_array().cloned().unwrap_or_default();
    let sign = |rule: &Value| if rule["access"] == "allow" { '+' } else { '-' };
    let text = |value: &Value, field: &str| value[field].as_str().unwrap_or_default().to_owned();
    let mut commands: Vec<String> = list(&role, "categories")
        .iter()
        .map(|rule| format!("{}@{}", sign(rule), text(rule, "name")))
        .collect();
    for rule in list(&role, "commands") {
        let subcommand = rule["subcommand"].as_str().map(|name| format!("|{name}"));
        let subcommand = subcommand.unwrap_or_default();
        commands.push(format!(
            "{}{}{subcommand}",
            sign(&rule),
            text(&rule, "name")
        ));
    }
    // `-@all` and `+@all` forget every rule before them.
    if let Some(last) = commands
        .iter()
        .rposition(|rule| rule == "-@all" || rule == "+@all")
    {
        let kept = commands.split_off(if commands[last] == "-@all" {
            last + 1
        } else {
            last
        });
        commands = kept;
    }
    let mut keys: Vec<(String, String)> = list(&permission, "keys")
        .iter()
        .map(|key| {
            let access = match text(key, "access").as_str() {
                "read" => "R",
                "write" => "W",
                _ => "RW",
            };
            (access.to_owned(), text(key, "pattern"))
        })
        .collect();
    let all_keys = keys
        .iter()
        .any(|(access, pattern)| access == "RW" && pattern == "*");
    if all_keys {
        keys.clear();
    }
    let mut channels: Vec<String> = list(&permission, "channels")
        .iter()
        .filter_map(|channel| channel.as_str().map(str::to_owned))
        .collect();
    let all_channels = channels.iter().any(|channel| channel == "*");
    if all_channels {
        channels.clear();
    }
    Rights {
        commands,
        all_keys,
        keys,
        all_channels,
        channels,
    }
}

/// The file, by the rules of `ACLLoadFromFile` (acl.c).
fn read(text: &str) -> Result<BTreeMap<String, Account>, String> {
    let mut accounts = BTreeMap::new();
    for line in text
        .split('\n')
        .map(|line| line.trim_matches([' ', '\t', '\r', '\n']))
    {
        if line.is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split(' ').collect();
        let ["user", name, rules @ ..] = words.as_slice() else {
            return Err(format!("a line that begins no user: {line}"));
        };
        let mut account = Account::default();
        for rule in merged(rules)? {
            apply(&mut account, &rule)?;
        }
        if accounts.insert((*name).to_owned(), account).is_some() {
            return Err(format!("user {name} twice"));
        }
    }
    Ok(accounts)
}

/// Joins the words of each selector (`ACLMergeSelectorArguments`).
fn merged(words: &[&str]) -> Result<Vec<String>, String> {
    let mut merged = Vec::new();
    let mut open: Option<String> = None;
    for word in words {
        match &mut open {
            None if word.starts_with('(') && !word.ends_with(')') => {
                open = Some((*word).to_owned());
            }
            None => merged.push((*word).to_owned()),
            Some(selector) => {
                selector.push(' ');
                selector.push_str(word);
                if word.ends_with(')') {
                    merged.extend(open.take());
                }
            }
        }
    }
    match open {
        Some(selector) => Err(format!("unmatched parenthesis in {selector}")),
        None => Ok(merged),
    }
}

/// One rule of a user (`ACLSetUser`).
fn apply(account: &mut Account, rule: &str) -> Result<(), String> {
    match rule {
        "on" => account.on = true,
        "off" => account.on = false,
        "nopass" => {
            account.nopass = true;
            account.hashes.clear();
        }
        _ => {
            if let Some(hash) = rule.strip_prefix('#') {
                account.hashes.push(hash.to_owned());
            } else if let Some(inner) = rule
                .strip_prefix('(')
                .and_then(|rule| rule.strip_suffix(')'))
            {
                let words =
                    shell::words(inner.as_bytes()).ok_or("unbalanced quotes in a selector")?;
                let mut rights = Rights::default();
                for word in words {
                    select(&mut rights, &String::from_utf8_lossy(&word))?;
                }
                account.selectors.push(rights);
            } else {
                select(&mut account.root, rule)?;
            }
        }
    }
    Ok(())
}

/// One rule of a selector (`ACLSetSelector`).
fn select(rights: &mut Rights, rule: &str) -> Result<(), String> {
    match rule {
        "~*" | "allkeys" => {
            rights.all_keys = true;
            rights.keys.clear();
        }
        "&*" | "allchannels" => {
            rights.all_channels = true;
            rights.channels.clear();
        }
        "resetchannels" => {
            rights.all_channels = false;
            rights.channels.clear();
        }
        "-@all" => rights.commands.clear(),
        "+@all" => rights.commands = vec![rule.to_owned()],
        _ => {
            let key = if let Some(pattern) = rule.strip_prefix('~') {
                Some(("RW", pattern))
            } else {
                rule.strip_prefix('%').and_then(|rule| rule.split_once('~'))
            };
            if let Some((access, pattern)) = key {
                if rights.all_keys {
                    return Err(format!("{rule} after every key"));
                }
                rights.keys.push((access.to_owned(), pattern.to_owned()));
            } else if let Some(channel) = rule.strip_prefix('&') {
                if rights.all_channels {
                    return Err(format!("{rule} after every channel"));
                }
                rights.channels.push(channel.to_owned());
            } else if rule.starts_with(['+', '-']) {
                rights.commands.push(rule.to_owned());
            } else {
                return Err(format!("syntax error at {rule}"));
            }
        }
    }
    Ok(())
}

/// Users with bindings and roles within the schema.
fn users(dice: &mut Dice) -> Vec<User> {
    let mut names: Vec<String> = Vec::new();
    for _ in 0..dice.below(5) {
        let name = if dice.once_in(8) {
            "default".to_owned()
        } else {
            dice.text(&alphabet("abcXYZ019_-"), 1, 12)
        };
        if !name.starts_with("_momento_") && !names.contains(&name) {
            names.push(name);
        }
    }
    names.into_iter().map(|name| user(&name, dice)).collect()
}

fn user(name: &str, dice: &mut Dice) -> User {
    let grants: Vec<Grant> = (0..dice.between(1, 4)).map(|_| grant(dice)).collect();
    let hash = |dice: &mut Dice| format!("{:016x}", dice.next()).repeat(4);
    let hashes: Vec<String> = (0..dice.between(1, 3)).map(|_| hash(dice)).collect();
    let permissions: Vec<_> = grants.iter().map(|grant| &grant.permission).collect();
    let binding = json!({ "username": name, "passwordHashes": hashes, "permissions": permissions });
    let binding: AclBinding = serde_json::from_value(binding).expect("a binding");
    User { binding, grants }
}

fn grant(dice: &mut Dice) -> Grant {
    let keys: Vec<Value> = (0..dice.below(4))
        .map(|_| match *dice.of(&["", "read", "write", "readwrite"]) {
            "" => json!({ "pattern": pattern('~', dice) }),
            access => json!({ "pattern": pattern('~', dice), "access": access }),
        })
        .collect();
    let mut permission = json!({ "roleRef": "r", "keys": keys });
    if dice.once_in(2) {
        let channels: Vec<String> = (0..dice.below(4)).map(|_| pattern('&', dice)).collect();
        permission["channels"] = json!(channels);
    }
    Grant {
        permission: serde_json::from_value(permission).expect("a permission"),
        role: role(dice),
    }
}

/// A pattern that the schema takes: no quote, no space, no control character, not this prefix.
fn pattern(prefix: char, dice: &mut Dice) -> String {
    if dice.once_in(4) {
        return "*".to_owned();
    }
    let odd = alphabet("ab09*?[]()^-:{}~&%#@+|\\/.,;=$<>!äß🦀");
    let text = dice.text(&odd, 1, 12);
    match text.trim_start_matches(prefix) {
        "" => "x".to_owned(),
        text => text.to_owned(),
    }
}

fn role(dice: &mut Dice) -> ValkeyRoleSpec {
    let access = |dice: &mut Dice| *dice.of(&["allow", "deny"]);
    let categories: Vec<Value> = (0..dice.below(4))
        .map(|_| json!({ "name": dice.of(&["all", "read", "write", "x_Y-1"]), "access": access(dice) }))
        .collect();
    let commands: Vec<Value> = (0..dice.below(5))
        .map(|_| {
            let mut rule =
                json!({ "name": dice.of(&["get", "set", "Config"]), "access": access(dice) });
            if dice.once_in(3) {
                rule["subcommand"] = json!(dice.of(&["get", "rewrite"]));
            }
            rule
        })
        .collect();
    serde_json::from_value(json!({ "categories": categories, "commands": commands }))
        .expect("a role")
}
