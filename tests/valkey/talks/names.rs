//! Replies without what differs from one run to the next: ids become the names of servers, offsets become classes.
//! Never hides a flag, a role, an error's text, a slot or the state of a link.

use std::collections::BTreeMap;

use super::reply::Answer;
use super::reply::Reply;
use super::script::Name;
use crate::servers;

/// Who is who in one talk.
#[derive(Debug, Clone, Default)]
pub(crate) struct Names {
    servers: BTreeMap<Name, Known>,
    /// Ids that are nobody's, in the order in which they were first seen: of shards, of histories, of handshakes.
    strange: Vec<String>,
}

#[derive(Debug, Clone)]
struct Known {
    address: String,
    /// The ids that it had, the present one last.
    ids: Vec<String>,
}

const ID_LENGTH: usize = 40;

/// What counts bytes: 0 and 1 mean something, any other number only that there were some.
const OFFSETS: &[&str] = &[
    "slave_repl_offset",
    "slave_read_repl_offset",
    "master_repl_offset",
    "second_repl_offset",
    "repl_backlog_first_byte_offset",
    "repl_backlog_histlen",
    "replication-offset",
    "offset",
    "cow_size",
    "remaining_repl_size",
    "master_sync_total_bytes",
];

/// What depends on the moment, but for -1, which means never.
const MOMENTS: &[&str] = &[
    "lag",
    "master_last_io_seconds_ago",
    "master_link_down_since_seconds",
    "master_sync_last_io_seconds_ago",
    "create_time",
    "last_update_time",
    "last_ack_time",
];

impl Names {
    /// The address that a server of this name has, also before it is started.
    pub(crate) fn address(&mut self, name: Name) -> String {
        let next = self.servers.len() + 1;
        let known = self.servers.entry(name).or_insert_with(|| Known {
            address: format!("127.0.0.{next}"),
            ids: Vec::new(),
        });
        known.address.clone()
    }

    /// The one will be where the other was.
    pub(crate) fn take_address(&mut self, name: Name, from: Name) {
        let address = self.address(from);
        self.address(name);
        self.servers.get_mut(&name).expect("just made").address = address;
    }

    /// The server says that this is its id now.
    pub(crate) fn identify(&mut self, name: Name, id: &str) {
        self.address(name);
        let known = self.servers.get_mut(&name).expect("just made");
        if known.ids.last().is_none_or(|last| last != id) {
            known.ids.push(id.to_owned());
        }
    }

    /// The id that a server has now.
    pub(crate) fn id(&self, name: Name) -> &str {
        let known = self.servers.get(&name);
        let last = known.and_then(|known| known.ids.last());
        last.unwrap_or_else(|| panic!("{name} has no id yet"))
    }

    /// `<a>` is the id of `a`, `<a.2>` the one that it had next, `<a.ip>` its address.
    pub(crate) fn filled(&mut self, word: &str) -> String {
        let inside = word
            .strip_prefix('<')
            .and_then(|rest| rest.strip_suffix('>'));
        let Some(inside) = inside else {
            return word.to_owned();
        };
        if inside == "password" {
            return servers::PASSWORD.to_owned();
        }
        let name = inside.chars().next().expect("a name in the brackets");
        if inside.split_once('.').is_some_and(|(_, rest)| rest == "ip") {
            return self.address(name);
        }
        let nth = inside
            .split_once('.')
            .map_or(1, |(_, nth)| nth.parse().expect("a number"));
        let ids = &self
            .servers
            .get(&name)
            .expect("a server that was started")
            .ids;
        ids[nth - 1].clone()
    }

    /// The lines of an answer, each the same in every run.
    pub(crate) fn lines(
        &mut self,
        words: &[String],
        picks: &[String],
        answer: &Answer,
    ) -> Vec<String> {
        let reply = match answer {
            Answer::Reply(reply) => reply,
            Answer::Refused => return vec!["(refused)".to_owned()],
            Answer::Closed => return vec!["(closed)".to_owned()],
            Answer::Silent => return vec!["(silent)".to_owned()],
        };
        let command = words.iter().take(2).map(|word| word.to_ascii_uppercase());
        let command: Vec<String> = command.collect();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        if matches!(reply, Reply::Error(_)) {
            return vec![self.named(&reply.inline())];
        }
        match *command {
            ["CLUSTER", "NODES"] => self.rows(&reply.lines(), picks),
            ["CLUSTER", "GETSLOTMIGRATIONS"] => self.jobs(reply, picks),
            ["CLUSTER", "SHARDS" | "SLOTS"] => {
                let mut lines = self.sorted(reply).lines();
                lines.sort();
                lines.iter().map(|line| self.named(line)).collect()
            }
            ["CLUSTER", "INFO"] | ["INFO", ..] => self.fields(&reply.lines(), picks),
            _ => reply.lines().iter().map(|line| self.named(line)).collect(),
        }
    }

    /// Lists of nodes in the order of their names, whatever order their server learnt them in.
    fn sorted(&self, reply: &Reply) -> Reply {
        let items = match reply {
            Reply::Array(items) => items,
            Reply::Bulk(text) => return Reply::Bulk(known_only(text, &self.servers)),
            Reply::Simple(_) | Reply::Error(_) | Reply::Integer(_) | Reply::Nil => {
                return reply.clone();
            }
        };
        let mut items: Vec<Reply> = items.iter().map(|item| self.sorted(item)).collect();
        for at in 1..items.len() {
            if items[at - 1] == Reply::Bulk("replication-offset".to_owned()) {
                let offset = items[at].inline();
                items[at] = Reply::Bulk(class(offset.trim_start_matches("(integer) ")).to_owned());
            }
        }
        let nodes = match *items {
            // Of SLOTS: the range and the primary come first.
            [Reply::Integer(_), Reply::Integer(_), Reply::Array(_), ..] => 3,
            // Of SHARDS.
            [Reply::Array(_), ..] => 0,
            _ => items.len(),
        };
        items[nodes..].sort_by_key(Reply::inline);
        Reply::Array(items)
    }

    /// The table of nodes: sorted by name, moments and epochs hidden.
    fn rows(&mut self, lines: &[String], picks: &[String]) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        let option = |option: &str| picks.iter().any(|pick| pick == option);
        let (epochs, nolinks) = (option("epochs"), option("nolinks"));
        for line in lines {
            let line = known_only(line, &self.servers);
            let mut columns: Vec<&str> = line.split(' ').collect();
            columns[4..if epochs { 6 } else { 7 }].fill(".");
            if nolinks {
                columns[7] = ".";
            }
            let row = columns.join(" ");
            let picked = |pick: &String| {
                row.starts_with(&format!("<{pick}>")) || *pick == "#" && !row.starts_with('<')
            };
            if picks
                .iter()
                .all(|pick| pick == "epochs" || pick == "nolinks")
                || picks.iter().any(picked)
            {
                rows.push(row);
            }
        }
        // Who is known by name comes first; the others by their addresses.
        rows.sort_by_key(|row| {
            let stranger = !row.starts_with('<');
            let sorted = if stranger {
                row[ID_LENGTH..].to_owned()
            } else {
                row.clone()
            };
            (stranger, sorted)
        });
        if rows.is_empty() {
            rows.push("(none)".to_owned());
        }
        rows.iter().map(|row| self.named(row)).collect()
    }

    /// One line a job, as `field:value`.
    fn jobs(&mut self, reply: &Reply, picks: &[String]) -> Vec<String> {
        let Reply::Array(jobs) = reply else {
            return reply.lines();
        };
        let mut lines = Vec::new();
        for job in jobs {
            let Reply::Array(fields) = job else {
                panic!("a job that is no list: {job:?}");
            };
            let pairs: Vec<String> = fields
                .chunks(2)
                .map(|pair| {
                    hidden(
                        &pair[0].inline(),
                        pair[1].inline().trim_start_matches("(integer) "),
                    )
                })
                .collect();
            let picked = |pair: &&String| {
                let field = pair.split(':').next().unwrap_or_default();
                picks.is_empty() || picks.iter().any(|pick| pick == field)
            };
            let pairs: Vec<String> = pairs.iter().filter(picked).cloned().collect();
            lines.push(self.named(&pairs.join(" ")));
        }
        if lines.is_empty() {
            lines.push("(none)".to_owned());
        }
        lines
    }

    /// `field:value` lines; those that were asked for, in that order.
    fn fields(&mut self, lines: &[String], picks: &[String]) -> Vec<String> {
        let line = |line: &String| match line.split_once(':') {
            Some((field, value)) if value.contains('=') => {
                let parts: Vec<String> = value
                    .split(',')
                    .map(|part| match part.split_once('=') {
                        Some((key, value)) => hidden(key, value).replacen(':', "=", 1),
                        None => part.to_owned(),
                    })
                    .collect();
                format!("{field}:{}", parts.join(","))
            }
            Some((field, value)) => hidden(field, value),
            None => line.clone(),
        };
        let lines: Vec<String> = lines.iter().map(line).collect();
        let mut picked: Vec<String> = Vec::new();
        for pick in picks {
            let begin = format!("{pick}:");
            let found = lines.iter().find(|line| line.starts_with(&begin));
            picked.push(
                found
                    .cloned()
                    .unwrap_or_else(|| format!("({pick} is missing)")),
            );
        }
        let all = if picks.is_empty() { lines } else { picked };
        all.iter().map(|line| self.named(line)).collect()
    }

    /// Every id and address as a name. What no editor keeps at the end of a line is not there.
    pub(crate) fn named(&mut self, text: &str) -> String {
        let mut text = known_only(text.trim_end(), &self.servers);
        while let Some(at) = id_at(&text) {
            let id = text[at..at + ID_LENGTH].to_owned();
            let position = self.strange.iter().position(|strange| *strange == id);
            let position = position.unwrap_or_else(|| {
                self.strange.push(id.clone());
                self.strange.len() - 1
            });
            text = text.replace(&id, &format!("<#{}>", position + 1));
        }
        text
    }
}

/// Ids and addresses of servers as names; ids that are nobody's stay.
fn known_only(text: &str, servers: &BTreeMap<Name, Known>) -> String {
    let mut text = text.to_owned();
    for (name, known) in servers {
        for (index, id) in known.ids.iter().enumerate() {
            let shown = match index {
                0 => format!("<{name}>"),
                _ => format!("<{name}.{}>", index + 1),
            };
            text = text.replace(id, &shown);
        }
        let mut found = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(&known.address) {
            let (before, after) = rest.split_at(at);
            let after = &after[known.address.len()..];
            found.push_str(before);
            // 127.0.0.1 is not the beginning of 127.0.0.12.
            if after.starts_with(|next: char| next.is_ascii_digit()) {
                found.push_str(&known.address);
            } else {
                found.extend(["<", &name.to_string(), ".ip>"]);
            }
            rest = after;
        }
        found.push_str(rest);
        text = found;
    }
    text
}

/// Where the first run of exactly so many hexadecimal digits begins. All zeros mean none.
fn id_at(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let digit = |at: usize| {
        bytes
            .get(at)
            .is_some_and(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte))
    };
    let mut at = 0;
    while at < bytes.len() {
        let length = (at..bytes.len()).take_while(|at| digit(*at)).count();
        let zeros = bytes[at..at + length].iter().all(|byte| *byte == b'0');
        if length == ID_LENGTH && !zeros {
            return Some(at);
        }
        at += length.max(1);
    }
    None
}

/// `field:value` with the value as a class where it varies.
fn hidden(field: &str, value: &str) -> String {
    let value = if OFFSETS.contains(&field) {
        class(value)
    } else if MOMENTS.contains(&field) && value != "-1" {
        "."
    } else {
        value
    };
    format!("{field}:{value}")
}

fn class(value: &str) -> &str {
    match value {
        "-1" | "0" | "1" => value,
        _ if value.starts_with('-') => "<-1",
        _ => ">1",
    }
}
