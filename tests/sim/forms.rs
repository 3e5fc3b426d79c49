//! Sim-E: every parser and renderer, fed with forms that a seed draws, held to a second opinion.
//! Never shares code with what it judges: each reader here is written from Valkey's or Kubernetes' own
//! rules.
//!
//! `FORMS=n` draws n forms in all (100,000 by default). A failure names the family and the seed of
//! its one form; `FORM=seed cargo test --test sim -- forms::family` draws that one alone.

mod acls;
mod chains;
mod dice;
mod objects;
mod quantities;
mod settings;
mod shell;
mod slots;
mod statuses;
mod tables;

use std::any::Any;
use std::env;
use std::io::Write as _;
use std::io::stdout;
use std::panic::catch_unwind;
use std::time::Instant;

use self::dice::Dice;

/// How many forms, unless the environment says otherwise.
const FORMS: u64 = 100_000;

/// A family's name, what part in a hundred of all forms it gets, and how it draws and judges one.
type Family = (&'static str, u64, fn(&mut Dice) -> Result<(), String>);

/// Of two families no two forms have one seed: each family begins at a place of its own.
fn seed(family: &str, number: u64) -> u64 {
    let place = family.bytes().fold(0, |place: u64, byte| {
        place.wrapping_mul(257) + u64::from(byte)
    });
    Dice::new(place).next() ^ number
}

fn judge((name, share, form): Family) {
    let variable = |name: &str| {
        let text = env::var(name).ok()?;
        let number = text.strip_prefix("0x").map_or_else(
            || text.parse().ok(),
            |hex| u64::from_str_radix(hex, 16).ok(),
        );
        Some(number.unwrap_or_else(|| panic!("{name} is {text:?}, which is no number")))
    };
    let seeds: Vec<u64> = match variable("FORM") {
        Some(seed) => vec![seed],
        None => (0..variable("FORMS").unwrap_or(FORMS) * share / 100)
            .map(|number| seed(name, number))
            .collect(),
    };
    let began = Instant::now();
    for seed in &seeds {
        let judged = catch_unwind(|| form(&mut Dice::new(*seed)));
        let judged = judged.unwrap_or_else(|panic| Err(format!("panicked: {}", words(&*panic))));
        if let Err(story) = judged {
            panic!(
                "form {seed:#x} of {name}: {story}\n\
                 again: FORM={seed:#x} cargo test --test sim -- forms::{name}"
            );
        }
    }
    let (forms, seconds) = (seeds.len(), began.elapsed().as_secs_f64());
    // Past the harness, which would keep it from whoever reads a passing run.
    writeln!(stdout(), "forms: {forms} {name} in {seconds:.1} s").expect("stdout is open");
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "without a word".to_owned())
}

/// The difference, if there is one.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wish: &T) -> Result<(), String> {
    if found == wish {
        return Ok(());
    }
    Err(format!("{what} is\n  {found:?}\nbut should be\n  {wish:?}"))
}

/// Says what does not hold.
fn hold(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

#[test]
fn tables() {
    judge(("tables", 30, tables::form));
}

#[test]
fn settings() {
    judge(("settings", 15, settings::form));
}

#[test]
fn acls() {
    judge(("acls", 13, acls::form));
}

#[test]
fn quantities() {
    judge(("quantities", 20, quantities::form));
}

#[test]
fn objects() {
    judge(("objects", 5, objects::form));
}

#[test]
fn slots() {
    judge(("slots", 7, slots::form));
}

#[test]
fn chains() {
    judge(("chains", 7, chains::form));
}

#[test]
fn statuses() {
    judge(("statuses", 3, statuses::form));
}
