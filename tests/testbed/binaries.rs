//! The programs of a Kubernetes, built once from their Go modules.
//! Never downloads a program that somebody else has built, never builds the same sources twice.

use std::io::BufRead as _;
use std::io::BufReader;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::path::PathBuf;
use std::process::Child;
use std::process::Command;
use std::process::ExitStatus;
use std::process::Stdio;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use super::cache;
use super::cache::Ingredients;
use super::command::Look;
use super::command::command;
use super::command::finish;
use super::command::line_of;
use super::command::say;
use super::command::wait_for;
use super::error::Error;

/// Often enough that nobody takes a long build for a hang.
const HEARTBEAT: Duration = Duration::from_secs(30);

/// Far above the slowest build seen (8 minutes on two cores).
const BUILD_LIMIT: Duration = Duration::from_hours(1);

struct Module {
    name: &'static str,
    /// What to build in it, and the names under which the program answers.
    programs: &'static [(&'static str, &'static [&'static str])],
    linker_flags: &'static str,
    /// Build tags, separated by commas.
    tags: &'static str,
    /// How long the first build took on two cores.
    usual: &'static str,
}

const MODULES: &[Module] = &[
    Module {
        name: "kube",
        programs: &[(
            ".",
            &[
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "kubelet",
                "kube-proxy",
                "kubectl",
                "etcd",
            ],
        )],
        // Without these the server calls itself v0.0.0.
        linker_flags: "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 \
                       -X k8s.io/component-base/version.gitMajor=1 \
                       -X k8s.io/component-base/version.gitMinor=36",
        tags: "",
        usual: "8 minutes",
    },
    Module {
        name: "containerd",
        programs: &[
            (
                "github.com/containerd/containerd/v2/cmd/containerd",
                &["containerd"],
            ),
            (
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                &["containerd-shim-runc-v2"],
            ),
            ("github.com/containerd/containerd/v2/cmd/ctr", &["ctr"]),
        ],
        linker_flags: "-s -w",
        tags: "",
        usual: "90 seconds",
    },
    Module {
        name: "dns",
        programs: &[(".", &["coredns"])],
        linker_flags: "-s -w",
        tags: "",
        usual: "2 minutes",
    },
    Module {
        name: "pause",
        programs: &[(".", &["pause"])],
        linker_flags: "-s -w",
        tags: "",
        usual: "a second",
    },
];

/// No part of a Kubernetes: built when it is asked for.
const TOOLS: &[Module] = &[
    Module {
        name: "helm",
        programs: &[("helm.sh/helm/v4/cmd/helm", &["helm"])],
        linker_flags: "-s -w",
        tags: "",
        usual: "3 minutes",
    },
    Module {
        name: "promtool",
        programs: &[(
            "github.com/prometheus/prometheus/cmd/promtool",
            &["promtool"],
        )],
        linker_flags: "-s -w",
        // Rules need no way to find what to scrape, and the clouds' libraries take minutes.
        tags: "remove_all_sd",
        usual: "4 minutes",
    },
];

/// The directories with the programs, for a PATH.
pub(crate) fn directories() -> Result<Vec<PathBuf>, Error> {
    let mut directories = Vec::new();
    for (position, module) in MODULES.iter().enumerate() {
        let step = format!("{} of {}", position + 1, MODULES.len());
        directories.push(built(module, &step)?);
    }
    Ok(directories)
}

/// Where the program of the given name is.
pub(crate) fn program(name: &str) -> Result<PathBuf, Error> {
    let here = |module: &Module| {
        module
            .programs
            .iter()
            .any(|(_, names)| names.contains(&name))
    };
    let module = MODULES.iter().chain(TOOLS).find(|module| here(module));
    let module = module.ok_or_else(|| {
        Error::Refused(format!("no module of the testbed has a program {name:?}"))
    })?;
    Ok(built(module, "1 of 1")?.join(name))
}

fn built(module: &Module, step: &str) -> Result<PathBuf, Error> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/testbed/go")
        .join(module.name);
    let ingredients = Ingredients::default()
        .text(&format!("{}{}", module.linker_flags, module.tags))
        .text(std::env::consts::ARCH)
        .directory(&sources)?;
    cache::kept(module.name, ingredients, |place| {
        say(&format!(
            "building {} ({step}; once, about {} on two cores)",
            module.name, module.usual
        ));
        finish(&mut go(&sources, ["mod", "download"]))?;
        for (package, names) in module.programs {
            build(&sources, module, package, names, place)?;
        }
        Ok(())
    })
}

fn go<const N: usize>(sources: &Path, words: [&str; N]) -> Command {
    let mut go = command(["go"]);
    go.args(words).current_dir(sources).env("CGO_ENABLED", "0");
    // The versions are what go.mod says they are, whatever work space this tree happens to lie in.
    go.env("GOWORK", "off").env("GOFLAGS", "-mod=readonly");
    go
}

fn build(
    sources: &Path,
    module: &Module,
    package: &str,
    names: &[&str],
    place: &Path,
) -> Result<(), Error> {
    let Some((first, others)) = names.split_first() else {
        return Ok(());
    };
    let packages = finish(&mut go(
        sources,
        ["list", "-tags", module.tags, "-deps", package],
    ))?
    .lines()
    .count();
    let output = place.join(first);
    let mut build = go(sources, ["build", "-v", "-ldflags", module.linker_flags]);
    build
        .args(["-tags", module.tags])
        .arg("-o")
        .arg(&output)
        .arg(package)
        .stderr(Stdio::piped());
    let child = build.spawn().map_err(|source| Error::Start {
        command: line_of(&build),
        source,
    })?;
    let (status, complaints) = watch(child, first, packages)?;
    if !status.success() {
        return Err(Error::Failed {
            command: line_of(&build),
            status,
            output: complaints,
        });
    }
    for name in others {
        symlink(first, place.join(name)).map_err(|source| Error::File {
            doing: "link",
            path: place.join(name),
            source,
        })?;
    }
    Ok(())
}

/// Waits for the build, with a line now and then that says how far it is.
fn watch(mut child: Child, name: &str, packages: usize) -> Result<(ExitStatus, String), Error> {
    let compiled = AtomicUsize::new(0);
    let start = Instant::now();
    let stderr = child.stderr.take();
    let mut last_line = Instant::now();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut complaints = Vec::new();
            for line in stderr
                .into_iter()
                .flat_map(|pipe| BufReader::new(pipe).lines())
            {
                match line {
                    Ok(line) if line.contains([' ', ':']) => complaints.push(line),
                    Ok(_) => {
                        compiled.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(_) => break,
                }
            }
            complaints.join("\n")
        });
        let status = wait_for(&format!("the build of {name}"), BUILD_LIMIT, || {
            if last_line.elapsed() >= HEARTBEAT {
                last_line = Instant::now();
                say(&format!(
                    "{name}: {} of at most {packages} packages compiled after {} s",
                    compiled.load(Ordering::Relaxed),
                    start.elapsed().as_secs()
                ));
            }
            match child.try_wait() {
                Ok(Some(status)) => Ok(Look::Came(status)),
                Ok(None) => Ok(Look::NotYet("it still runs".to_owned())),
                Err(source) => Err(Error::Start {
                    command: format!("the build of {name}"),
                    source,
                }),
            }
        })?;
        Ok((status, reader.join().unwrap_or_default()))
    })
}
