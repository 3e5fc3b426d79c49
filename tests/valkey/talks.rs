//! Conversations with servers, kept as texts in `talks/*.txt`: real processes and the simulated ones of `tests/sim`
//! are held to the same words. Never rewrites them but with `UPDATE_EXPECT=1`, and then from the real ones.
//!
//! `TALKS=word,word` plays only those with one of the words in their file's name or in their title, and
//! `TALKS=unrecorded` those with a question that has no answer yet. The model plays with so many seeds as `SEEDS` says.

mod modelled;
mod names;
mod player;
mod real;
mod reply;
mod script;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Instant;

use self::modelled::Modelled;
use self::player::Difference;
use self::player::Player;
use self::player::Replies;
use self::real::Real;
use self::script::Talk;

/// So many talks at once: they wait most of the time, and still leave two cores some room.
const AT_ONCE: usize = 16;

/// Where the model is not like the servers: the talk, and why it stays so. None that is none any more may be here.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[
    // To be mended in the model: it would decide what the operator sees.
    (
        "a replica that cannot log in, of a primary that had none before",
        "a primary that never had a replica counts what it writes, and so the replica's 0 is not its offset",
    ),
    (
        "a primary that had no replica before is emptied by one that is about to sync",
        "as above: the plain FAILOVER that empties a shard does not",
    ),
    (
        "a cluster of one serves all slots",
        "as above: the offset is 1",
    ),
    (
        "a minority with a replica does not elect",
        "what was posted on a link that never came about arrives when the cut heals",
    ),
    (
        "what a server answers while it loads",
        "the time that `sync_extra` adds is spent before the loading",
    ),
    (
        "while a job runs",
        "the target's COUNTKEYSINSLOT leaves out what is being imported",
    ),
    // Of little weight: the operator forbids it or never asks.
    (
        "all slots of a shard, with cluster-allow-replica-migration: its nodes join the target",
        "a source that became a replica still lists its jobs",
    ),
    (
        "with cluster-allow-replica-migration a primary that lost its replica is given one",
        "the model moves no replica to an orphaned primary",
    ),
    (
        "files that are not loaded",
        "a connection from before an empty ACL file stays without rights",
    ),
    ("settings that stop the start", "the model loads no modules"),
    ("keys of two slots", "the model does not know MSET and MGET"),
];

/// So many in the model, where nobody waits.
const CORES: usize = 2;

struct Played {
    talk: Talk,
    outcome: Result<Replies, Difference>,
    seconds: f64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/valkey/talks")
}

/// By the names of their files.
fn texts() -> BTreeMap<String, String> {
    let mut texts = BTreeMap::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            texts.insert(file, fs::read_to_string(&path).unwrap());
        }
    }
    texts
}

fn talks() -> Vec<Talk> {
    let wanted = std::env::var("TALKS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').collect();
    let all = texts();
    let all = all
        .iter()
        .flat_map(|(file, text)| script::parse(file, text));
    all.filter(|talk| {
        let named = |word: &&str| talk.file.contains(word) || talk.title.contains(word);
        wanted.iter().any(named) || wanted == ["unrecorded"] && !talk.is_recorded()
    })
    .collect()
}

fn describe(played: &Played) -> String {
    let Played { talk, outcome, .. } = played;
    let mut text = String::new();
    if let Err(difference) = outcome {
        let Difference {
            line,
            step,
            expected,
            got,
        } = difference;
        writeln!(text, "{}:{line}: {}\n  {step}", talk.file, talk.title).unwrap();
        for line in expected {
            writeln!(text, "  expected  {line}").unwrap();
        }
        for line in got {
            writeln!(text, "  got       {line}").unwrap();
        }
    }
    text
}

/// Plays them all, so many at once.
fn play_all(
    talks: &[Talk],
    at_once: usize,
    play: impl Fn(&Talk) -> Result<Replies, Difference> + Sync,
) -> Vec<Played> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..at_once.min(talks.len()) {
            scope.spawn(|| {
                while let Some(talk) = talks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    let outcome = play(talk);
                    let (talk, seconds) = (talk.clone(), begin.elapsed().as_secs_f64());
                    done.lock().unwrap().push(Played {
                        talk,
                        outcome,
                        seconds,
                    });
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
    done.sort_by_key(|played| (played.talk.file.clone(), played.talk.line()));
    done
}

/// The new replies of each file's talks, where they went to their end.
fn rewrite(played: &[Played]) {
    for (file, text) in texts() {
        let of_file = played.iter().filter(|played| played.talk.file == file);
        let replies: Replies = of_file
            .filter_map(|played| played.outcome.as_ref().ok())
            .flatten()
            .cloned()
            .collect();
        let new = script::rewritten(&text, &replies);
        if new != text {
            fs::write(folder().join(file), new).unwrap();
        }
    }
}

#[test]
fn every_question_has_an_answer_and_every_talk_a_title_of_its_own() {
    let mut titles = BTreeMap::new();
    for (file, text) in texts() {
        let mut replies = Replies::new();
        for talk in script::parse(&file, &text) {
            assert!(talk.is_recorded(), "{file}: {}: not recorded", talk.title);
            let other = titles.insert(talk.title.clone(), file.clone());
            assert_eq!(other, None, "{:?} is there twice", talk.title);
            replies.extend(
                talk.steps
                    .into_iter()
                    .map(|step| (step.line, step.expected)),
            );
        }
        assert_eq!(script::rewritten(&text, &replies), text, "{file}");
    }
    assert!(titles.len() >= 120, "only {} talks", titles.len());
}

#[test]
fn real_servers_say_what_is_written() {
    let recording = std::env::var_os("UPDATE_EXPECT").is_some();
    let begin = Instant::now();
    let played = play_all(&talks(), AT_ONCE, |talk| {
        Player::new(&mut Real::new(), recording).play(talk)
    });
    println!("{} talks in {:.1?}", played.len(), begin.elapsed());
    tell_times(&played);
    if recording {
        rewrite(&played);
    }
    report(&played);
}

#[test]
fn the_model_says_what_is_written() {
    let (begin, talks) = (Instant::now(), talks());
    let seeds = std::env::var("SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let mut unknown = Vec::new();
    let mut known: BTreeMap<&str, bool> = BTreeMap::new();
    for seed in 1..=seeds {
        let played = play_all(&talks, CORES, |talk| {
            Player::new(&mut Modelled::new(seed), false).play(talk)
        });
        for mut played in played {
            let same = |(title, _): &&(&str, &str)| *title == played.talk.title;
            if let Some((title, _)) = KNOWN_DIFFERENCES.iter().find(same) {
                *known.entry(title).or_default() |= played.outcome.is_err();
            } else {
                played.talk.title = format!("{} (seed {seed})", played.talk.title);
                unknown.push(played);
            }
        }
    }
    let count = unknown.len() + known.len();
    println!("{count} talks in {:.1?}", begin.elapsed());
    tell_times(&unknown);
    report(&unknown);
    for (title, differs) in known {
        assert!(differs, "{title:?} is no difference any more");
    }
}

/// The longest first.
fn tell_times(played: &[Played]) {
    let mut played: Vec<&Played> = played.iter().collect();
    played.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for Played { talk, seconds, .. } in played.iter().take(20) {
        println!("{seconds:7.2} s  {}: {}", talk.file, talk.title);
    }
}

fn report(played: &[Played]) {
    let differences: Vec<String> = played
        .iter()
        .filter(|played| played.outcome.is_err())
        .map(describe)
        .collect();
    let count = differences.len();
    assert!(
        count == 0,
        "\n{}\n{count} of {} talks",
        differences.join("\n"),
        played.len()
    );
}
