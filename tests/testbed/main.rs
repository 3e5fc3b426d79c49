//! The testbed as a program. Starts, enters, breaks and ends a Kubernetes; never tests anything
//! itself.

#![expect(
    clippy::print_stdout,
    reason = "a program for people answers on standard output"
)]

#[path = "lib.rs"]
mod testbed;

mod demo;

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;

use self::testbed::Options;
use self::testbed::Testbed;
use self::testbed::command::say;
use self::testbed::control::Part;
use self::testbed::error::Error;
use self::testbed::image;
use self::testbed::machine;
use self::testbed::machine::Signal;
use self::testbed::network::Cut;
use self::testbed::network::Direction;
use self::testbed::operator;
use self::testbed::pod::PodName;

/// The testbed that is meant when none is named.
const NAME: &str = "demo";

const USAGE: &str = "\
testbed [--name NAME] VERB

  up [--nodes N] [--zones A,B,C] [--operator]
     [--api-server-flag=--FLAG]... [--controller-manager-flag=--FLAG]...
                             start a Kubernetes that stays, of 1 node where no number is given;
                             with 0 it is a control plane only
  down                       end it without a trace
  list                       the testbeds that run here
  demo                       up, the operator from its release manifest, the sample cluster, keys
  shell                      a shell in it with kubectl, valkey-cli and the cluster's names
  run COMMAND...             the same for one command
  kubeconfig                 the path of an administrator's kubeconfig, valid also outside
  prepare                    build all that the first start would build
  operator-image BINARY      make the operator's image; prints its name and its archive
  operator BINARY            deploy this operator in it, or update the one that is there
  load-image ARCHIVE         give every node an image
  tag-image FROM TO          give an image a second name

  node pause|resume|kill|start|heal NODE
  node cut NODE [in|out|both] [PORT|all] [PEER-ADDRESS]
  part pause|resume|kill|start etcd|kube-apiserver|kube-controller-manager|kube-scheduler|coredns
  pod stop|continue|terminate|kill NAMESPACE POD [PROCESS]
";

fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let name = if words.first().is_some_and(|word| word == "--name") && words.len() > 1 {
        words.drain(..2).nth(1).unwrap_or_default()
    } else {
        NAME.to_owned()
    };
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match perform(&name, &words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

fn perform(name: &str, words: &[&str]) -> Result<(), Error> {
    match words {
        ["up", options @ ..] => up(name, options),
        ["down"] => {
            machine::end(name)?;
            say(&format!("{name:?} is down"));
            Ok(())
        }
        ["list"] => {
            for name in machine::running() {
                println!("{name}");
            }
            Ok(())
        }
        ["demo"] => demo::run(name),
        ["shell"] => shell(name),
        ["run", command @ ..] if !command.is_empty() => {
            let mut command = Testbed::attach(name)?.command(command);
            command.stdin(std::process::Stdio::inherit());
            Err(replaced(&mut command))
        }
        ["kubeconfig"] => {
            println!("{}", Testbed::attach(name)?.kubeconfig().display());
            Ok(())
        }
        ["prepare"] => {
            image::pause()?;
            image::valkey()?;
            image::distroless().map(drop)
        }
        ["operator-image", binary] => {
            let image = image::operator(Path::new(binary))?;
            println!("{} {}", image.name, image.archive.display());
            Ok(())
        }
        ["operator", binary] => operator::deploy(&Testbed::attach(name)?, Path::new(binary)),
        ["load-image", archive] => Testbed::attach(name)?.load_image(Path::new(archive)),
        ["tag-image", from, to] => Testbed::attach(name)?.tag_image(from, to),
        ["node", fault @ ..] => node(&Testbed::attach(name)?, fault),
        ["part", fault @ ..] => part(&Testbed::attach(name)?, fault),
        ["pod", fault @ ..] => pod(&Testbed::attach(name)?, fault),
        ["help" | "--help" | "-h", ..] => {
            print!("{USAGE}");
            Ok(())
        }
        _ => Err(usage(words)),
    }
}

fn up(name: &str, words: &[&str]) -> Result<(), Error> {
    let mut options = Options {
        name: name.to_owned(),
        nodes: 1,
        ..Options::default()
    };
    let mut with_operator = false;
    let mut rest = words;
    while let [word, others @ ..] = rest {
        let (flag, joined) = word
            .split_once('=')
            .map_or((*word, None), |(a, b)| (a, Some(b)));
        rest = others;
        if flag == "--operator" && joined.is_none() {
            with_operator = true;
            continue;
        }
        let value = match (joined, others) {
            (Some(value), _) => value,
            (None, [value, others @ ..]) => {
                rest = others;
                value
            }
            (None, []) => return Err(usage(words)),
        };
        match flag {
            "--nodes" => options.nodes = value.parse().map_err(|_| usage(words))?,
            "--zones" => options.zones = value.split(',').map(str::to_owned).collect(),
            "--api-server-flag" => options.api_server_flags.push(value.to_owned()),
            "--controller-manager-flag" => options.controller_manager_flags.push(value.to_owned()),
            _ => return Err(usage(words)),
        }
    }
    let testbed = Testbed::up(&options)?;
    if with_operator {
        operator::deploy(&testbed, &operator_binary()?)?;
    }
    testbed.let_stay()
}

fn shell(name: &str) -> Result<(), Error> {
    let testbed = Testbed::attach(name)?;
    let mut shell = testbed.command(["bash", "--norc", "-i"]);
    shell
        .env("PS1", format!("({name}) \\w $ "))
        .stdin(std::process::Stdio::inherit());
    say("kubectl and valkey-cli are here, names like my-cluster.demo.svc resolve; leave with exit");
    Err(replaced(&mut shell))
}

/// Becomes the command, so that its end and its signals are its own.
fn replaced(command: &mut std::process::Command) -> Error {
    let source = command.exec();
    Error::Start {
        command: self::testbed::command::line_of(command),
        source,
    }
}

fn node(testbed: &Testbed, words: &[&str]) -> Result<(), Error> {
    match words {
        ["pause", node] => testbed.node_pause(node),
        ["resume", node] => testbed.node_resume(node),
        ["kill", node] => testbed.node_kill(node),
        ["start", node] => testbed.node_start(node),
        ["heal", node] => testbed.heal(node),
        ["cut", node, rest @ ..] => {
            let mut cut = Cut::both_ways();
            if let [direction, ..] = rest {
                cut.direction = match *direction {
                    "in" => Direction::In,
                    "out" => Direction::Out,
                    "both" => Direction::Both,
                    _ => return Err(usage(words)),
                };
            }
            if let Some(port) = rest.get(1).filter(|port| **port != "all") {
                cut.port = Some(port.parse().map_err(|_| usage(words))?);
            }
            if let Some(peer) = rest.get(2) {
                cut.peer = Some(peer.parse().map_err(|_| usage(words))?);
            }
            if rest.len() > 3 {
                return Err(usage(words));
            }
            testbed.cut(node, &cut)
        }
        _ => Err(usage(words)),
    }
}

fn part(testbed: &Testbed, words: &[&str]) -> Result<(), Error> {
    let [verb, name] = words else {
        return Err(usage(words));
    };
    let found = Part::ALL.into_iter().find(|part| part.name() == *name);
    let part = found.ok_or_else(|| usage(words))?;
    match *verb {
        "pause" => testbed.pause(part),
        "resume" => testbed.resume(part),
        "kill" => testbed.kill(part),
        "start" => testbed.start_again(part),
        _ => Err(usage(words)),
    }
}

fn pod(testbed: &Testbed, words: &[&str]) -> Result<(), Error> {
    let [verb, namespace, name, process @ ..] = words else {
        return Err(usage(words));
    };
    let signal = match *verb {
        "stop" => Signal::Stop,
        "continue" => Signal::Continue,
        "terminate" => Signal::Terminate,
        "kill" => Signal::Kill,
        _ => return Err(usage(words)),
    };
    testbed.pod_signal(
        &PodName { namespace, name },
        process.first().copied(),
        signal,
    )
}

/// The operator that the same build made.
fn operator_binary() -> Result<PathBuf, Error> {
    let own = std::env::current_exe().map_err(|source| Error::File {
        doing: "find",
        path: "this program".into(),
        source,
    })?;
    let binary = own
        .parent()
        .and_then(Path::parent)
        .map(|build| build.join("valkey-operator"));
    binary.filter(|path| path.exists()).ok_or_else(|| {
        Error::Refused("the operator is not built: run cargo build --bins first".to_owned())
    })
}

fn usage(words: &[&str]) -> Error {
    Error::Refused(format!(
        "{:?} is not understood\n\n{USAGE}",
        words.join(" ")
    ))
}
