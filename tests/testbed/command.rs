//! Runs commands and waits for conditions. Never swallows what a failed command had to say.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::process::Output;
use std::process::Stdio;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::error::Error;

/// Between two looks at a condition: short beside anything that is waited for here, long beside a
/// look.
const POLL: Duration = Duration::from_millis(100);

/// Of a failed command's output; the end of it, where the reason is.
const OUTPUT_CHARS_MAX: usize = 4000;

/// One line of progress for the person who waits, on standard error: standard output is for
/// answers.
pub(crate) fn say(line: &str) {
    // Nobody to tell is no reason to stop.
    drop(writeln!(std::io::stderr(), "testbed: {line}"));
}

pub(crate) fn command<I, S>(words: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut words = words.into_iter();
    let program = words.next();
    let mut command = Command::new(program.as_ref().map_or("false".as_ref(), AsRef::as_ref));
    command.args(words).stdin(Stdio::null());
    // What runs here speaks to the testbed, to which no proxy leads.
    for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
        if command.get_program() == "kubectl" {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the command to its end; its standard output, or why it failed.
pub(crate) fn run<I, S>(words: I) -> Result<String, Error>
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    finish(&mut command(words))
}

pub(crate) fn finish(command: &mut Command) -> Result<String, Error> {
    let output = output(command)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(command, &output))
}

/// Runs the command to its end, whatever that end is.
pub(crate) fn output(command: &mut Command) -> Result<Output, Error> {
    command.output().map_err(|source| Error::Start {
        command: line_of(command),
        source,
    })
}

/// Runs the command with `input` on its standard input.
pub(crate) fn feed(command: &mut Command, input: &[u8]) -> Result<String, Error> {
    let start = |source, command: &Command| Error::Start {
        command: line_of(command),
        source,
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| start(source, command))?;
    let mut stdin = child.stdin.take();
    let output = thread::scope(|scope| {
        // A command that ends early says why on its standard error; the broken pipe adds nothing.
        scope.spawn(move || stdin.as_mut().map(|stdin| stdin.write_all(input)));
        child.wait_with_output()
    })
    .map_err(|source| start(source, command))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(command, &output))
}

pub(crate) fn failed(command: &Command, output: &Output) -> Error {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let surplus = text.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
    Error::Failed {
        command: line_of(command),
        status: output.status,
        output: text.chars().skip(surplus).collect(),
    }
}

pub(crate) fn line_of(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args() {
        line.push(' ');
        line.push_str(&word.to_string_lossy());
    }
    line
}

/// What a look at a condition found.
pub(crate) enum Look<T> {
    Came(T),
    NotYet(String),
}

/// Looks until it has come, for `limit` at the most.
pub(crate) fn wait_for<T>(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<Look<T>, Error>,
) -> Result<T, Error> {
    let start = Instant::now();
    loop {
        match look()? {
            Look::Came(value) => return Ok(value),
            Look::NotYet(last_seen) if start.elapsed() >= limit => {
                return Err(Error::Deadline {
                    what: what.to_owned(),
                    seconds: limit.as_secs(),
                    last_seen,
                });
            }
            Look::NotYet(_) => thread::sleep(POLL),
        }
    }
}

/// As `wait_for`, where a command that fails means: not yet.
pub(crate) fn wait_for_success(
    what: &str,
    limit: Duration,
    mut look: impl FnMut() -> Result<String, Error>,
) -> Result<String, Error> {
    wait_for(what, limit, || match look() {
        Ok(text) => Ok(Look::Came(text)),
        Err(error) => Ok(Look::NotYet(error.to_string())),
    })
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|source| Error::File {
        doing: "read",
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), Error> {
    fs::write(path, text).map_err(|source| Error::File {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn make_directory(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|source| Error::File {
        doing: "make the directory",
        path: path.to_owned(),
        source,
    })
}

pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), Error> {
    fs::rename(from, to).map_err(|source| Error::File {
        doing: "move into place",
        path: to.to_owned(),
        source,
    })
}

/// Removes a file or a directory with all that is in it; that there is none is fine.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(Error::File {
            doing: "remove",
            path: path.to_owned(),
            source,
        }),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Does the same for each item at once; the first error, if there is one.
pub(crate) fn all_at_once<T: Sync>(
    items: &[T],
    work: impl Fn(&T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    thread::scope(|scope| {
        let threads: Vec<_> = items
            .iter()
            .map(|item| scope.spawn(|| work(item)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            let panicked = || Error::Refused("a thread of the testbed panicked".to_owned());
            thread.join().unwrap_or_else(|_| Err(panicked()))
        })
    })
}
