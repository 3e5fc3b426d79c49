//! The small machine a testbed is: network, mounts, processes and control groups of its own, held
//! by one first process.
//! Never leaves anything behind when that process ends, never touches a process it did not start.

use std::env;
use std::fs;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::ChildStdin;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use super::binaries;
use super::command::Look;
use super::command::command;
use super::command::finish;
use super::command::line_of;
use super::command::make_directory;
use super::command::output;
use super::command::read;
use super::command::remove;
use super::command::run;
use super::command::say;
use super::command::wait_for;
use super::command::write;
use super::error::Error;
use super::image;

/// Where the testbeds of this machine lie, each in a directory of its name. Not below /tmp, which
/// may be in memory, and short, because the path of a socket has 107 characters at the most.
const ROOT: &str = "/var/tmp/valkey-testbed";

/// To start or to end the first process takes a fraction of a second; the rest is a machine under
/// load.
const NAMESPACE_LIMIT: Duration = Duration::from_mins(1);

/// A killed process is gone at once, unless it waits for a disk.
const END_LIMIT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    /// Of the first process, as seen from outside.
    pid: u32,
    path: String,
}

/// While it is held, the testbed ends with this process, however that ends.
pub(crate) struct Hold {
    child: Child,
    lifeline: Option<ChildStdin>,
}

/// A program that runs in the testbed until the testbed ends.
pub(crate) struct Daemon<'a> {
    pub(crate) name: &'a str,
    /// Below the testbed's own; what is started by the program stays in it.
    pub(crate) cgroup: &'a str,
    /// The network namespace, where it is not the testbed's outer one.
    pub(crate) network: Option<&'a str>,
    pub(crate) words: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Stop,
    Continue,
    Terminate,
    Kill,
}

impl Signal {
    pub(crate) fn flag(self) -> &'static str {
        match self {
            Self::Stop => "-STOP",
            Self::Continue => "-CONT",
            Self::Terminate => "-TERM",
            Self::Kill => "-KILL",
        }
    }
}

impl Machine {
    /// A new machine, in the place of what is left of an earlier one.
    pub(crate) fn start(name: &str) -> Result<(Self, Hold), Error> {
        let _alone = only_starter(name)?;
        if runs(name) {
            return Err(Error::Refused(format!("testbed {name:?} runs already")));
        }
        end_dead(name)?;
        let directory = directory_of(name);
        make_directory(&directory.join("log"))?;
        make_directory(&directory.join("daemons"))?;
        write(&directory.join("inside.sh"), include_str!("inside.sh"))?;
        write(&directory.join("launch.sh"), include_str!("launch.sh"))?;
        write(&directory.join("hold.sh"), include_str!("hold.sh"))?;
        let log = directory.join("log/hold.log");
        let open = |path: &Path| {
            File::options()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|source| Error::File {
                    doing: "open",
                    path: path.to_owned(),
                    source,
                })
        };
        let mut hold = Command::new("bash");
        hold.arg(directory.join("hold.sh"))
            .arg(&directory)
            .arg(cgroup_of(name));
        hold.stdin(Stdio::piped())
            .stdout(open(&log)?)
            .stderr(open(&log)?);
        // In a group of its own, an interrupt from the terminal reaches the owner only.
        hold.process_group(0).current_dir("/");
        let mut child = hold.spawn().map_err(|source| Error::Start {
            command: line_of(&hold),
            source,
        })?;
        let mut hold = Hold {
            lifeline: child.stdin.take(),
            child,
        };
        wait_for("the first process of the testbed", NAMESPACE_LIMIT, || {
            if directory.join("pid").exists() {
                return Ok(Look::Came(()));
            }
            let log = fs::read_to_string(&log).unwrap_or_default();
            match hold.child.try_wait() {
                Ok(None) => Ok(Look::NotYet(log)),
                Ok(Some(_)) | Err(_) => Err(Error::Refused(format!(
                    "the namespaces of the testbed could not be made: {log}"
                ))),
            }
        })?;
        Ok((Self::attach(name)?, hold))
    }

    /// The machine of that name, which runs already.
    pub(crate) fn attach(name: &str) -> Result<Self, Error> {
        check_name(name)?;
        let directory = directory_of(name);
        let pid = first_process(&directory)
            .ok_or_else(|| Error::Refused(format!("no testbed {name:?} runs here")))?;
        let mut path: Vec<PathBuf> = binaries::directories()?;
        path.push(image::valkey_programs()?);
        path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
        path.extend(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin"].map(PathBuf::from));
        let path = path
            .iter()
            .map(|path| path.to_string_lossy())
            .collect::<Vec<_>>()
            .join(":");
        Ok(Self {
            name: name.to_owned(),
            directory,
            pid,
            path,
        })
    }

    /// A command that runs in the testbed's outer namespaces.
    pub(crate) fn inside<I, S>(&self, words: I) -> Command
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut inside = command([
            "nsenter", "--net", "--mount", "--pid", "--cgroup", "--target",
        ]);
        inside.arg(self.pid.to_string()).arg("--").args(words);
        inside
            .env("PATH", &self.path)
            .env("KUBECONFIG", self.directory.join("kubeconfig"));
        for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
            inside.env_remove(name);
        }
        inside
    }

    pub(crate) fn run<I, S>(&self, words: I) -> Result<String, Error>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        finish(&mut self.inside(words))
    }

    /// Puts the other end of a new pair of network devices into the testbed.
    pub(crate) fn give_device(&self, outside: &str, inside: &str) -> Result<(), Error> {
        let pid = self.pid.to_string();
        let pair = [
            "ip", "link", "add", outside, "type", "veth", "peer", "name", inside,
        ];
        run(pair.into_iter().chain(["netns", &pid])).map(drop)
    }

    /// Starts the program, and remembers how, so that it can be started again.
    pub(crate) fn launch(&self, daemon: &Daemon<'_>) -> Result<(), Error> {
        let mut words = vec![daemon.cgroup.to_owned()];
        if let Some(network) = daemon.network {
            // Not `ip netns exec`, which mounts a new /sys without the control groups.
            words.extend(["nsenter".to_owned(), format!("--net=/run/netns/{network}")]);
        }
        words.extend(daemon.words.iter().cloned());
        write(&self.daemon_file(daemon.name, "words"), words.join("\n"))?;
        self.start_again(daemon.name)
    }

    pub(crate) fn start_again(&self, daemon: &str) -> Result<(), Error> {
        if self.runs(daemon) {
            return Err(Error::Refused(format!("{daemon} runs already")));
        }
        let words = read(&self.daemon_file(daemon, "words"))?;
        let (cgroup, words) = words.split_once('\n').unwrap_or((&words, ""));
        let mut launch = self.inside(["bash"]);
        launch.arg(self.directory.join("launch.sh")).arg(cgroup);
        launch
            .arg(self.daemon_file(daemon, "pid"))
            .arg(self.log(daemon));
        finish(launch.args(words.split('\n'))).map(drop)
    }

    pub(crate) fn signal(&self, daemon: &str, signal: Signal) -> Result<(), Error> {
        let pid = read(&self.daemon_file(daemon, "pid"))?;
        self.run(["kill", signal.flag(), pid.trim()]).map(drop)
    }

    pub(crate) fn kill(&self, daemon: &str) -> Result<(), Error> {
        if !self.runs(daemon) {
            return Ok(());
        }
        self.signal(daemon, Signal::Kill)?;
        wait_for(&format!("the end of {daemon}"), END_LIMIT, || {
            Ok(if self.runs(daemon) {
                Look::NotYet("it still runs".to_owned())
            } else {
                Look::Came(())
            })
        })
    }

    pub(crate) fn runs(&self, daemon: &str) -> bool {
        let Ok(pid) = read(&self.daemon_file(daemon, "pid")) else {
            return false;
        };
        output(&mut self.inside(["kill", "-0", pid.trim()]))
            .is_ok_and(|output| output.status.success())
    }

    pub(crate) fn log(&self, daemon: &str) -> PathBuf {
        self.directory.join("log").join(format!("{daemon}.log"))
    }

    /// In each hierarchy of the machine outside, where the testbed's control groups begin.
    pub(crate) fn cgroups(&self) -> Vec<PathBuf> {
        hierarchies()
            .into_iter()
            .map(|path| path.join(cgroup_of(&self.name)))
            .collect()
    }

    fn daemon_file(&self, daemon: &str, extension: &str) -> PathBuf {
        self.directory
            .join("daemons")
            .join(format!("{daemon}.{extension}"))
    }
}

impl Hold {
    /// Lets the testbed outlive this process.
    pub(crate) fn let_stay(mut self) -> Result<(), Error> {
        let written = self
            .lifeline
            .as_mut()
            .map(|lifeline| lifeline.write_all(b"stay\n"));
        written.unwrap_or(Ok(())).map_err(|source| Error::File {
            doing: "write to",
            path: "the lifeline".into(),
            source,
        })
    }

    /// Ends the testbed and waits until nothing is left of it.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        drop(self.lifeline.take());
        wait_for("the end of the testbed", NAMESPACE_LIMIT, || {
            match self.child.try_wait() {
                Ok(Some(_)) => Ok(Look::Came(())),
                Ok(None) => Ok(Look::NotYet("it still ends".to_owned())),
                Err(source) => Err(Error::Start {
                    command: "hold.sh".to_owned(),
                    source,
                }),
            }
        })
    }
}

/// Of lower case letters, digits and, in the middle, dashes.
pub(crate) fn is_plain(text: &str, length_max: usize) -> bool {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    (1..=length_max).contains(&text.len())
        && text.chars().all(|letter| plain(letter) || letter == '-')
        && text.starts_with(plain)
        && text.ends_with(plain)
}

/// A name becomes a directory that is emptied, and part of the paths of sockets.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if is_plain(name, 30) {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "a name is 1 to 30 of a-z, 0-9 and '-', which {name:?} is not"
    )))
}

pub(crate) fn directory_of(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

pub(crate) fn runs(name: &str) -> bool {
    first_process(&directory_of(name)).is_some()
}

/// The names of the testbeds that run on this machine.
pub(crate) fn running() -> Vec<String> {
    let entries = fs::read_dir(ROOT).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.retain(|name| runs(name));
    names.sort();
    names
}

/// Ends the testbed of that name, running or not, and removes all that is left of it.
pub(crate) fn end(name: &str) -> Result<(), Error> {
    check_name(name)?;
    let directory = directory_of(name);
    if let Some(pid) = first_process(&directory) {
        run(["kill", "-KILL", &pid.to_string()])?;
    }
    let limit = NAMESPACE_LIMIT;
    wait_for(&format!("the end of testbed {name:?}"), limit, || {
        Ok(match (first_process(&directory), holder(&directory)) {
            (None, None) => Look::Came(()),
            (first, holder) => Look::NotYet(format!("processes {first:?} and {holder:?}")),
        })
    })?;
    // What follows has been done already, unless the holder was killed too.
    clear(name)?;
    remove(&directory)?;
    // The last one takes the common directory along; that others are in it is fine.
    drop(fs::remove_dir(ROOT));
    Ok(())
}

/// Holds a lock, so that what one program is about to start is not taken for dead by another.
fn only_starter(name: &str) -> Result<File, Error> {
    let failed = |source| Error::File {
        doing: "lock",
        path: ROOT.into(),
        source,
    };
    loop {
        make_directory(&directory_of(name))?;
        let root = File::open(ROOT).map_err(failed)?;
        root.lock().map_err(failed)?;
        // With a directory in it, the root is not removed, as it may have been before the lock.
        make_directory(&directory_of(name))?;
        let held = root.metadata().map_err(failed)?.ino();
        if fs::metadata(ROOT).is_ok_and(|metadata| metadata.ino() == held) {
            return Ok(root);
        }
    }
}

/// Removes what is left of testbeds of which neither the first process nor the holder lives, but
/// leaves the starter's own directory, empty.
fn end_dead(starter: &str) -> Result<(), Error> {
    for entry in fs::read_dir(ROOT).into_iter().flatten().flatten() {
        let directory = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if first_process(&directory).is_some() || holder(&directory).is_some() {
            continue;
        }
        clear(&name)?;
        if name != starter {
            remove(&directory)?;
        }
    }
    Ok(())
}

/// Removes the control groups of a dead testbed and all that is in its directory.
fn clear(name: &str) -> Result<(), Error> {
    for hierarchy in hierarchies() {
        let cgroup = hierarchy.join(cgroup_of(name));
        if cgroup.exists() {
            let tree = ["find".as_ref(), cgroup.as_os_str()];
            let rest = ["-depth", "-type", "d", "-exec", "rmdir", "{}", "+"].map(AsRef::as_ref);
            run(tree.into_iter().chain(rest))?;
        }
    }
    let directory = directory_of(name);
    let left: Vec<_> = fs::read_dir(&directory)
        .into_iter()
        .flatten()
        .flatten()
        .collect();
    if !left.is_empty() {
        say(&format!(
            "removing what is left of testbed {name:?} in {}",
            directory.display()
        ));
    }
    left.iter().try_for_each(|entry| remove(&entry.path()))
}

fn cgroup_of(name: &str) -> String {
    format!("valkey-testbed-{name}")
}

fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.join("cgroup.procs").exists())
        .collect()
}

/// Known by what it runs, since its number may be another's by now.
fn first_process(directory: &Path) -> Option<u32> {
    let pid: u32 = fs::read_to_string(directory.join("pid"))
        .ok()?
        .trim()
        .parse()
        .ok()?;
    let script = directory.join("inside.sh");
    command_line(pid)
        .split('\0')
        .any(|word| Path::new(word) == script)
        .then_some(pid)
}

fn holder(directory: &Path) -> Option<u32> {
    let script = directory.join("hold.sh");
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.into_iter().find(|pid| {
        command_line(*pid)
            .split('\0')
            .any(|word| Path::new(word) == script)
    })
}

fn command_line(pid: u32) -> String {
    fs::read(format!("/proc/{pid}/cmdline"))
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
