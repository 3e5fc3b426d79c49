//! Sim-M: puts known bugs back, one by one, and demands that the simulator notices each.
//! Never touches the working tree: a copy below `target/mutants` is edited. What it depends on is not compiled
//! again, and nothing that others run is made: the copy has no programs.
//!
//! `cargo run --example mutants` for all, `-- NAME...` for some; `SEEDS=n` for another number of
//! seeds than 2,000. Exits with 1 if one survives, or if the suites fail without any. The suites are told
//! `UNTIL_FIRST=1`: the first failure is enough.

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

use self::table::Edit;
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
    /// The suites failed, and how they say it.
    Caught(String),
    /// They did not end in time.
    Hung,
    /// They did not notice.
    Survived,
    /// It does not even compile, so that nothing is shown.
    Broken(String),
}

fn main() -> ExitCode {
    let asked: Vec<String> = env::args().skip(1).collect();
    let chosen = |mutant: &&Mutant| asked.is_empty() || asked.iter().any(|it| it == mutant.name);
    let bench = Bench::new();
    if let Some(why) = bench.is_useless(table::MUTANTS.iter().filter(chosen)) {
        println!("without any mutant: {why}");
        return ExitCode::FAILURE;
    }
    let mut rows = Vec::new();
    for mutant in table::MUTANTS.iter().filter(chosen) {
        println!("{}: {}", mutant.name, mutant.story);
        let began = Instant::now();
        let fate = bench.try_out(mutant.name, mutant.edits, mutant.noticed_by);
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
        Fate::Caught(how) => format!("caught    {how}"),
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
    logs: PathBuf,
}

impl Bench {
    fn new() -> Self {
        let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let bench = package.join("target/mutants");
        Self {
            package,
            tree: bench.join("tree"),
            logs: bench.join("logs"),
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

    /// A suite that fails on today's code would fail on every mutant, and show nothing.
    fn is_useless<'a>(&self, chosen: impl Iterator<Item = &'a Mutant>) -> Option<String> {
        let suites: BTreeSet<&str> = chosen.flat_map(|it| it.noticed_by).copied().collect();
        let suites: Vec<&str> = suites.into_iter().collect();
        let fate = self.try_out("none", &[], &suites);
        match fate.expect("the package can be copied") {
            Fate::Survived => None,
            Fate::Caught(why) | Fate::Broken(why) => Some(why),
            Fate::Hung => Some("the suites hang".to_owned()),
        }
    }

    fn try_out(&self, name: &str, edits: &[Edit], suites: &[&str]) -> io::Result<Fate> {
        self.refresh()?;
        for edit in edits {
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
        fs::create_dir_all(&self.logs)?;
        let log = self.logs.join(format!("{name}.log"));
        let fate = self.run(&program, suites, &log)?;
        println!("  log: {}", log.display());
        Ok(fate)
    }

    /// Builds the simulator over the copy; the program, or the compiler's first complaint.
    fn build(&self) -> io::Result<Result<PathBuf, String>> {
        let output = Command::new("cargo")
            .args(["test", "--no-run", "--test", "sim"])
            .args(["--message-format", "json-render-diagnostics"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", self.package.join("target"))
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

    fn run(&self, program: &Path, suites: &[&str], log: &Path) -> io::Result<Fate> {
        let out = File::create(log)?;
        let mut child = Command::new(program)
            .args(suites)
            .current_dir(&self.tree)
            .env(
                "SEEDS",
                env::var("SEEDS").unwrap_or_else(|_| SEEDS.to_owned()),
            )
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
        Ok(if success {
            Fate::Survived
        } else {
            Fate::Caught(how(&told))
        })
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

/// The first line that names a seed or a form, and the first that names a rule.
fn how(told: &str) -> String {
    let lines = || told.lines().map(str::trim);
    let seed = lines().find(|line| line.starts_with("form ") || line.contains("seed"));
    let rule = lines().find(|line| {
        let mut words = line.split_whitespace();
        words.any(is_rule) && line.contains(" at ")
    });
    let mut parts: Vec<&str> = seed.into_iter().chain(rule).collect();
    parts.dedup();
    let line = if parts.is_empty() {
        lines()
            .find(|line| line.contains("panicked"))
            .unwrap_or("it failed")
            .to_owned()
    } else {
        parts.join("; ")
    };
    line.chars().take(200).collect()
}

/// `S1` to `L11`.
fn is_rule(word: &str) -> bool {
    let number = word.strip_prefix(['S', 'L']).unwrap_or_default();
    number.len() <= 2 && number.parse::<u8>().is_ok()
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
