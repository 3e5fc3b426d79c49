//! The operator in a testbed, from its release manifest, or beside it, as a process of the machine
//! outside.
//! Never changes a manifest but for the image's name and where it comes from.

use std::fs::File;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::Stdio;
use std::time::Duration;

use super::Testbed;
use super::command::line_of;
use super::command::read;
use super::command::wait_for_success;
use super::error::Error;
use super::image;

/// The operator answers within seconds; the rest is a machine under load.
const ROLLOUT_LIMIT: Duration = Duration::from_mins(2);

/// The CRDs are served within a second of their creation.
const ESTABLISHED_LIMIT: Duration = Duration::from_mins(1);

/// Applies the CRDs and waits until they are served.
pub(crate) fn install_kinds(testbed: &Testbed) -> Result<(), Error> {
    let crds = manifest("crds/crds.json");
    let path = crds.to_string_lossy();
    testbed.kubectl(["apply", "--server-side", "--filename", &path])?;
    let words = [
        "wait",
        "--for=condition=Established",
        "--timeout=10s",
        "--filename",
        &path,
    ];
    let what = "the CRDs to be established";
    wait_for_success(what, ESTABLISHED_LIMIT, || testbed.kubectl(words)).map(drop)
}

/// Makes the image of this binary, gives it to every node, and deploys it as a user would; returns
/// when it runs.
pub(crate) fn deploy(testbed: &Testbed, binary: &Path) -> Result<(), Error> {
    let image = image::operator(binary)?;
    testbed.load_image(&image.archive)?;
    install_kinds(testbed)?;
    let release = read(&manifest("deploy/operator.yaml"))?;
    testbed.kubectl_with(
        ["apply", "--filename", "-"],
        &with_image(&release, &image.name),
    )?;
    let words = [
        "rollout",
        "status",
        "deployment/valkey-operator",
        "--timeout=10s",
    ];
    let words = words
        .into_iter()
        .chain(["--namespace", "valkey-operator"])
        .collect::<Vec<_>>();
    let what = "the operator's rollout";
    wait_for_success(what, ROLLOUT_LIMIT, || testbed.kubectl(&words)).map(drop)
}

/// The operator as a process of the machine outside; it ends when this is dropped.
pub(crate) struct Beside {
    child: Child,
    /// Its log, one JSON object a line.
    pub(crate) log: PathBuf,
}

/// Starts the binary with an administrator's rights; `environment` is added to this process's own.
pub(crate) fn beside(
    testbed: &Testbed,
    binary: &Path,
    environment: &[(&str, &str)],
) -> Result<Beside, Error> {
    let log = testbed.machine.log("valkey-operator");
    let open = || {
        File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(|source| Error::File {
                doing: "open",
                path: log.clone(),
                source,
            })
    };
    let mut command = Command::new(binary);
    command
        .env("KUBECONFIG", testbed.kubeconfig())
        .envs(environment.iter().copied());
    command.stdin(Stdio::null()).stdout(open()?).stderr(open()?);
    let child = command.spawn().map_err(|source| Error::Start {
        command: line_of(&command),
        source,
    })?;
    Ok(Beside { child, log })
}

impl Beside {
    /// As the kernel or a power failure would: nothing is finished, nothing is said.
    pub(crate) fn kill(&mut self) {
        // It may have ended by itself, which is no different.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.kill();
    }
}

fn manifest(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The release with the image made here, which no registry has.
fn with_image(release: &str, image: &str) -> String {
    let line = |line: &str| {
        let start = line.len() - line.trim_start_matches([' ', '-']).len();
        let (indent, field) = line.split_at(start);
        match field.split_once(':') {
            Some(("image", _)) => format!("{indent}image: {image}\n"),
            Some(("imagePullPolicy", _)) => format!("{indent}imagePullPolicy: IfNotPresent\n"),
            Some(_) | None => format!("{line}\n"),
        }
    };
    release.lines().map(line).collect()
}
