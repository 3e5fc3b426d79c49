//! Sim-M: puts known bugs back, one by one, and demands that the simulator notices each.
//! Never touches the working tree: a copy below `target/mutants` is edited, with a target folder of its own: cargo
//! takes the copy for the package itself, and would call fresh what was built of a mutant.
//!
//! `cargo run --example mutants` for all, `-- NAME...` for some; `SEEDS=n` for another number of
//! seeds than 2,000. Exits with 1 if one survives, or if what fails with it fails without it as well. The
//! suites are told `UNTIL_FIRST=1`: the first failure is enough.

#![expect(
    clippy::print_stdout,
    clippy::expect_used,
    reason = "a program for a terminal, which ends where it cannot go on"
)]

#[path = "lib.rs"]
mod table;

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::fs::File;
use std::io;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitCode;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use self::table::Mutant;

/// What is copied: whatever the package is built from.
const PARTS: [&str; 8] = [
    "Cargo.lock",
    "clippy.toml",
    "rust-toolchain.toml",
    "config",
    "crds",
    "deploy",
    "src",
    "tests",
];
/// A mutant that keeps the suites busy for longer has made them hang, which is noticing too.
const LONGEST: Duration = Duration::from_mins(20);
/// Seeds a suite, unless the environment says otherwise.
const SEEDS: &str = "2000";

/// What became of a mutant.
enum Fate {
    /// A suite failed.
    Caught(Failure),
    /// They did not end in time.
    Hung,
    /// They did not notice.
    Survived,
    /// It does not even compile, so that nothing is shown.
    Broken(String),
}

/// How a suite says that it failed.
struct Failure {
    suite: &'static str,
    /// The swarm's seed, if it was the swarm.
    seed: Option<u64>,
    words: String,
}

fn main() -> ExitCode {
    let asked: Vec<String> = env::args().skip(1).collect();
    let chosen = |mutant: &&Mutant| asked.is_empty() || asked.iter().any(|it| it == mutant.name);
    let mut bench = Bench::new();
    if let Err(why) = bench.begin().expect("the package can be copied") {
        println!("without any mutant: {why}");
        return ExitCode::FAILURE;
    }
    let mut rows = Vec::new();
    for mutant in table::MUTANTS.iter().filter(chosen) {
        println!("{}: {}", mutant.name, mutant.story);
        let began = Instant::now();
        let fate = bench.try_out(mutant);
        let fate = fate.expect("the copy can be edited");
        let row = row(mutant, &fate, began.elapsed());
        println!("  {row}");
        rows.push((row, matches!(fate, Fate::Caught(_) | Fate::Hung)));
    }
    bench.refresh().expect("the copy can be put right");
    println!();
    for (row, _) in &rows {
        println!("{row}");
    }
    let caught = rows.iter().filter(|(_, caught)| *caught).count();
    println!("{caught} of {} mutants caught", rows.len());
    if caught == rows.len() && caught > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn row(mutant: &Mutant, fate: &Fate, took: Duration) -> String {
    let told = match fate {
        Fate::Caught(failure) => format!("caught    {}", failure.words),
        Fate::Hung => "caught    the suites hang".to_owned(),
        Fate::Survived => "SURVIVED".to_owned(),
        Fate::Broken(why) => format!("BROKEN    {why}"),
    };
    let (name, seconds) = (mutant.name, took.as_secs());
    format!("{name:<30} {seconds:>4} s  {told}")
}

/// Where mutants are tried.
struct Bench {
    package: PathBuf,
    tree: PathBuf,
    target: PathBuf,
    logs: PathBuf,
    /// The simulator without any mutant.
    sound: PathBuf,
    /// What is known to hold without any: a suite, or one seed of the swarm.
    vouched: BTreeSet<(&'static str, Option<u64>)>,
}

impl Bench {
    fn new() -> Self {
        let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let bench = package.join("target/mutants");
        Self {
            package,
            tree: bench.join("tree"),
            target: bench.join("target"),
            logs: bench.join("logs"),
            sound: bench.join("sound"),
            vouched: BTreeSet::new(),
        }
    }

    /// Makes the copy what the package is. Files that are equal keep their time, so that little is
    /// compiled again.
    fn refresh(&self) -> io::Result<()> {
        for part in PARTS {
            copy(&self.package.join(part), &self.tree.join(part))?;
        }
        let manifest = fs::read_to_string(self.package.join("Cargo.toml"))?;
        write(&self.tree.join("Cargo.toml"), lean(&manifest).as_bytes())
    }

    /// Builds the simulator without any mutant; if that fails, the compiler's first complaint.
    fn begin(&self) -> io::Result<Result<(), String>> {
        fs::create_dir_all(&self.logs)?;
        self.refresh()?;
        Ok(match self.build()? {
            Ok(program) => {
                fs::copy(program, &self.sound)?;
                Ok(())
            }
            Err(why) => Err(why),
        })
    }

    fn try_out(&mut self, mutant: &Mutant) -> io::Result<Fate> {
        self.refresh()?;
        for edit in mutant.edits {
            let file = self.tree.join(edit.file);
            let text = fs::read_to_string(&file)?;
            if text.matches(edit.text).count() != 1 {
                let why = format!("its text is not once in {}", edit.file);
                return Ok(Fate::Broken(why));
            }
            fs::write(file, text.replacen(edit.text, edit.replacement, 1))?;
        }
        let program = match self.build()? {
            Ok(program) => program,
            Err(why) => return Ok(Fate::Broken(why)),
        };
        let log = self.logs.join(format!("{}.log", mutant.name));
        let seeds = env::var("SEEDS").unwrap_or_else(|_| SEEDS.to_owned());
        for suite in mutant.noticed_by {
            match self.run(&program, suite, (0, &seeds), &log)? {
                Fate::Survived => {}
                Fate::Caught(failure) if !self.holds_without(&failure)? => {
                    let why = format!("fails without it too: {}", failure.words);
                    return Ok(Fate::Broken(why));
                }
                fate @ (Fate::Caught(_) | Fate::Hung | Fate::Broken(_)) => return Ok(fate),
            }
        }
        Ok(Fate::Survived)
    }

    /// What fails on today's code would fail on every mutant, and show nothing.
    fn holds_without(&mut self, failure: &Failure) -> io::Result<bool> {
        let Failure { suite, seed, .. } = *failure;
        if !self.vouched.contains(&(suite, seed)) {
            let log = self.logs.join("sound.log");
            let fate = self.run(&self.sound, suite, (seed.unwrap_or(0), "1"), &log)?;
            if !matches!(fate, Fate::Survived) {
                return Ok(false);
            }
            self.vouched.insert((suite, seed));
        }
        Ok(true)
    }

    /// Builds the simulator over the copy; the program, or the compiler's first complaint.
    fn build(&self) -> io::Result<Result<PathBuf, String>> {
        let output = Command::new("cargo")
            .args(["test", "--no-run", "--test", "sim"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            .output()?;
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        if !output.status.success() {
            let first = complaints.lines().find(|line| line.starts_with("error"));
            return Ok(Err(first.unwrap_or("does not build").to_owned()));
        }
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let messages = told
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
        let mut programs = messages.filter_map(|message| {
            let test = message.pointer("/target/name")? == "sim";
            let program = message.get("executable")?.as_str().map(PathBuf::from);
            program.filter(|_| test)
        });
        Ok(programs.next_back().ok_or_else(|| "no program".to_owned()))
    }

    /// Runs a suite of a program, of the swarm so many seeds from one on.
    fn run(
        &self,
        program: &Path,
        suite: &'static str,
        (first, seeds): (u64, &str),
        log: &Path,
    ) -> io::Result<Fate> {
        let out = File::create(log)?;
        let mut child = Command::new(program)
            .arg(suite)
            .current_dir(&self.tree)
            .env("FROM", first.to_string())
            .env("SEEDS", seeds)
            .env("UNTIL_FIRST", "1")
            .stdin(Stdio::null())
            .stderr(out.try_clone()?)
            .stdout(out)
            .spawn()?;
        let Some(success) = ended(&mut child)? else {
            child.kill()?;
            child.wait()?;
            return Ok(Fate::Hung);
        };
        let told = fs::read(log)?;
        let told = String::from_utf8_lossy(&told);
        if told.contains("running 0 tests") {
            return Ok(Fate::Broken("no such suite yet".to_owned()));
        }
        if success {
            return Ok(Fate::Survived);
        }
        let words = how(suite, &told);
        let seed = words.split_once("swarm, seed ");
        let seed = seed.and_then(|(_, rest)| rest.split(':').next()?.parse().ok());
        Ok(Fate::Caught(Failure { suite, seed, words }))
    }
}

/// Whether it ended well; nothing where it goes on for too long.
fn ended(child: &mut Child) -> io::Result<Option<bool>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if began.elapsed() > LONGEST {
            return Ok(None);
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// The line that says which run or form failed, and of what; the first line of a panic where none does.
fn how(suite: &str, told: &str) -> String {
    let (run, lines) = (format!("{suite}, "), || told.lines().map(str::trim));
    let mut named = lines().filter(|line| line.starts_with(&run) || line.starts_with("form "));
    let panicked = || lines().find(|line| line.contains("panicked"));
    let line = named.next().or_else(panicked).unwrap_or("it failed");
    line.chars().take(200).collect()
}

/// A manifest without its programs, which would be built for every mutant and run by nobody.
fn lean(manifest: &str) -> String {
    let mut tables = manifest.split("\n[");
    let head = tables.next().unwrap_or_default().lines();
    let head: Vec<&str> = head
        .filter(|line| !line.starts_with("default-run"))
        .collect();
    let kept = tables.filter(|table| !table.starts_with("[bin]]"));
    std::iter::once(head.join("\n"))
        .chain(kept.map(str::to_owned))
        .collect::<Vec<_>>()
        .join("\n[")
}

/// Writes what differs, so that what is equal is not compiled again.
fn write(to: &Path, new: &[u8]) -> io::Result<()> {
    if fs::read(to).is_ok_and(|old| old == new) {
        return Ok(());
    }
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(to, new)
}

/// Copies what differs, and removes what is not there any more.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return write(to, &fs::read(from)?);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(to)? {
        let entry = entry?;
        if !from.join(entry.file_name()).exists() {
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else {
                fs::remove_file(entry.path())?;
            }
        }
    }
    for entry in fs::read_dir(from)? {
        let name = entry?.file_name();
        copy(&from.join(&name), &to.join(&name))?;
    }
    Ok(())
}
