//! Conversations with servers, kept as texts in `talks/*.txt`: real processes and the simulated ones of `tests/sim`
//! are held to the same words. Never rewrites them but with `UPDATE_EXPECT=1`, and then from the real ones.
//!
//! `TALKS=word,word` plays only those with one of the words in their file's name or in their title, and
//! `TALKS=unrecorded` those with a question that has no answer yet.

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

/// What is random in the model comes from it.
const SEED: u64 = 1;

/// Where the model is not like the servers: the talk, and why it stays so. None that is none any more may be here.
const KNOWN_DIFFERENCES: &[(&str, &str)] = &[];

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
        wanted.iter().any(|word| named(word)) || wanted == ["unrecorded"] && !talk.is_recorded()
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

fn on_real_servers(talks: &[Talk], recording: bool) -> Vec<Played> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(talks.len()) {
            scope.spawn(|| {
                while let Some(talk) = talks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begin = Instant::now();
                    let outcome = Player::new(&mut Real::new(), recording).play(talk);
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
    done.into_inner().unwrap()
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
fn real_servers_say_what_is_written() {
    let recording = std::env::var_os("UPDATE_EXPECT").is_some();
    let begin = Instant::now();
    let mut played = on_real_servers(&talks(), recording);
    played.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for Played { talk, seconds, .. } in &played {
        println!("{seconds:6.1} s  {}: {}", talk.file, talk.title);
    }
    println!("{} talks in {:.1?}", played.len(), begin.elapsed());
    if recording {
        rewrite(&played);
    }
    report(&played);
}

#[test]
fn the_model_says_what_is_written() {
    let begin = Instant::now();
    let talks = talks();
    let played: Vec<Played> = talks
        .iter()
        .map(|talk| {
            let begin = Instant::now();
            let mut stage = Modelled::new(SEED);
            let outcome = Player::new(&mut stage, false).play(talk);
            let (talk, seconds) = (talk.clone(), begin.elapsed().as_secs_f64());
            Played {
                talk,
                outcome,
                seconds,
            }
        })
        .collect();
    println!("{} talks in {:.1?}", played.len(), begin.elapsed());
    let (known, played): (Vec<Played>, Vec<Played>) = played.into_iter().partition(|played| {
        let title = &played.talk.title;
        KNOWN_DIFFERENCES.iter().any(|(known, _)| known == title)
    });
    report(&played);
    for Played { talk, outcome, .. } in &known {
        assert!(
            outcome.is_err(),
            "{:?} is no difference any more",
            talk.title
        );
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
