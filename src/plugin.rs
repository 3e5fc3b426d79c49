//! `kubectl valkey`: what the operator sees, what it would do and what was asked for, printed.
//! Never writes: all that it holds is a `Visitor`, and never decides by rules of its own.

mod complete;
mod connect;
mod menu;
pub mod permission;
pub mod plan;
mod print;
mod report;
pub mod status;
#[cfg(test)]
mod tests;
mod wait;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use kube::config::KubeConfigOptions;
use kube::{Client, Config, ResourceExt as _};
use serde::Serialize;

use crate::api::cluster::{ClusterState, ValkeyCluster};
use crate::model::chain;
use crate::model::name::ClusterRef;
use crate::observe::visit::{Refusal, Sight, Visit, Visitor};
use crate::plugin::complete::{Choice, Line};
use crate::plugin::plan::Plan;
use crate::plugin::print::Tone;
use crate::plugin::status::{Overview, Status};

/// Looks at Valkey clusters; changes nothing.
///
/// Exit codes: 0 done (of `can-i`: yes, of `wait`: converged), 1 failed (of `can-i`: no), 2 wrong
/// usage, 3 `wait` timed out.
#[derive(Debug, Parser)]
#[command(name = "kubectl valkey", bin_name = "kubectl valkey", version)]
pub struct Words {
    #[command(flatten)]
    scope: Scope,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct Scope {
    /// The namespace; by default the context's
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// The context of the kubeconfig; by default the current one
    #[arg(long, global = true, value_name = "CONTEXT")]
    context: Option<String>,
    /// The form of the answer
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people, as wide as the terminal
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Every cluster; of one its shards and nodes, and what is going on
    Status {
        /// The cluster
        name: Option<String>,
        /// The clusters of all namespaces
        #[arg(short = 'A', long, conflicts_with = "name")]
        all_namespaces: bool,
        /// Draw it again every two seconds
        #[arg(short, long)]
        watch: bool,
    },
    /// What the operator does next, and why nothing that comes before
    Plan {
        /// The cluster; may be left out where the namespace has one
        name: Option<String>,
    },
    /// Wait until a cluster is what its spec asks for
    Wait {
        /// The cluster; may be left out where the namespace has one
        name: Option<String>,
        /// For how long, such as 90s or 10m
        #[arg(long, default_value = "10m", value_parser = duration)]
        timeout: Duration,
    },
    /// What a ValkeyConfig resolves to, and where each value comes from
    Menu {
        /// The ValkeyConfig
        config: String,
        /// List the clusters that it reaches instead
        #[arg(long)]
        used_by: bool,
    },
    /// How clients connect to a cluster
    Connect {
        /// The cluster; may be left out where the namespace has one
        name: Option<String>,
    },
    /// Whether a user may run a command, and by which rule
    CanI {
        /// The user, as bound
        user: String,
        #[command(flatten)]
        asked: Asked,
    },
    /// Which users may run a command
    WhoCan {
        #[command(flatten)]
        asked: Asked,
    },
    /// All that a bug report needs and no secret, as JSON
    Report {
        /// The cluster; may be left out where the namespace has one
        name: Option<String>,
    },
    /// Print a script that completes these words
    Completion {
        /// For which shell
        shell: Shell,
    },
    /// What may stand at the last word, as kubectl asks for it
    #[command(name = "__complete", hide = true)]
    Complete {
        /// The line
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct Asked {
    /// The command, with its subcommand behind a |, such as get or config|set
    command: String,
    /// A key, or a channel of a command of channels
    key: Option<String>,
    /// The cluster; may be left out where the namespace has one
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
}

/// Seconds, or a number with `s`, `m` or `h`.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.chars().last() {
        Some('s') => (text.trim_end_matches('s'), 1),
        Some('m') => (text.trim_end_matches('m'), 60),
        Some('h') => (text.trim_end_matches('h'), 3600),
        Some(_) | None => (text, 1),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "a number with s, m or h is wanted".to_owned())?;
    Ok(Duration::from_secs(number.saturating_mul(unit)))
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no way to an API server.
    #[error("no usable kubeconfig: name one by KUBECONFIG, and a context of it by --context")]
    Kubeconfig(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The API server did not give what was asked for.
    #[error("the API server does not answer as it should")]
    Observe(#[source] crate::observe::Error),
    /// The answer could not be written.
    #[error("the answer cannot be written")]
    Write(#[source] io::Error),
    /// The answer is no JSON.
    #[error("the answer cannot be put into JSON")]
    Json(#[source] serde_json::Error),
    /// There is no such cluster.
    #[error("there is no ValkeyCluster {0}: `kubectl valkey status -A` lists all")]
    NoCluster(ClusterRef),
    /// No name was given, and there is not just one.
    #[error("namespace {namespace:?} has {count} ValkeyClusters: name one")]
    Unnamed {
        /// Where.
        namespace: String,
        /// How many it has.
        count: usize,
    },
    /// What the answer needs may not be read.
    #[error("{what} needs more than you may read: {}", list(.refusals))]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Which requests were refused.
        refusals: Vec<Refusal>,
    },
    /// A reference of the menu does not resolve.
    #[error("ValkeyConfig {config:?} does not resolve")]
    Menu {
        /// Where it begins.
        config: String,
        /// Why not.
        source: crate::model::desired::MenuError,
    },
    /// Nobody is bound under that name.
    #[error("no binding names user {user:?}; bound are: {bound}")]
    NoUser {
        /// Who was asked for.
        user: String,
        /// Who there is.
        bound: String,
    },
    /// The table of commands has no such.
    #[error(transparent)]
    Command(permission::UnknownCommand),
}

fn list(refusals: &[Refusal]) -> String {
    let refusals: Vec<String> = refusals.iter().map(ToString::to_string).collect();
    refusals.join("; ")
}

/// How an answer ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done, or yes.
    Done,
    /// No.
    No,
    /// Not in time.
    TimedOut,
}

impl Exit {
    /// The process's exit code. 1 is a failure too, 2 a usage error.
    #[must_use]
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::No => 1,
            Self::TimedOut => 3,
        }
    }
}

/// An answer for people and for programs.
pub(crate) trait Shown: Serialize {
    /// For people, in lines of this width where words allow.
    fn text(&self, width: usize) -> String;
}

/// Answers one question on standard output.
pub async fn run(words: Words) -> Result<Exit, Error> {
    let Words { scope, command } = words;
    if let Command::Completion { shell } = command {
        let mut script = Vec::new();
        let mut grammar = Words::command();
        clap_complete::generate(shell, &mut grammar, "kubectl-valkey", &mut script);
        io::stdout().write_all(&script).map_err(Error::Write)?;
        return Ok(Exit::Done);
    }
    if let Command::Complete { words } = &command {
        put(&completed(words).await)?;
        return Ok(Exit::Done);
    }
    let desk = Desk::open(&scope).await?;
    match command {
        Command::Status {
            name: None,
            all_namespaces,
            watch,
        } => desk.overview(all_namespaces, watch).await,
        Command::Status {
            name: Some(name),
            watch,
            ..
        } => desk.status(name, watch).await,
        Command::Plan { name } => desk.plan(name).await,
        Command::Wait { name, timeout } => desk.wait(name, timeout).await,
        Command::Menu { config, used_by } => desk.menu(config, used_by).await,
        Command::Connect { name } => desk.connect(name).await,
        Command::CanI { user, asked } => desk.can(Some(user), asked).await,
        Command::WhoCan { asked } => desk.can(None, asked).await,
        Command::Report { name } => desk.report(name).await,
        Command::Completion { .. } | Command::Complete { .. } => Ok(Exit::Done),
    }
}

/// Whoever cannot be asked offers nothing: an error has no place in a line that is being typed.
async fn completed(words: &[String]) -> String {
    let line = Line::of(words);
    let given = |option: &str| line.value_of(option).map(str::to_owned);
    let scope = Scope {
        namespace: given("namespace"),
        context: given("context"),
        output: Output::Text,
    };
    let names = async {
        let choice = line.choice()?;
        let desk = Desk::open(&scope).await.ok()?;
        desk.names(choice).await.ok()
    };
    line.answer(&in_time(names).await)
}

/// The shell does not take another key meanwhile.
const COMPLETION: Duration = Duration::from_secs(2);

/// Names that are found soon; none where nobody answers.
async fn in_time(names: impl Future<Output = Option<Vec<String>>>) -> Vec<String> {
    let found = tokio::time::timeout(COMPLETION, names).await;
    found.ok().flatten().unwrap_or_default()
}

/// Between two looks of `--watch`.
const REDRAW: Duration = Duration::from_secs(2);

/// Clears the terminal, and goes to its first cell.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Where questions are answered.
struct Desk {
    visitor: Visitor,
    namespace: String,
    output: Output,
}

impl Desk {
    async fn open(scope: &Scope) -> Result<Self, Error> {
        let Scope {
            namespace,
            context,
            output,
        } = scope;
        let options = KubeConfigOptions {
            context: context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_kubeconfig(&options)
            .await
            .map_err(|error| Error::Kubeconfig(Box::new(error)))?;
        let namespace = namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client =
            Client::try_from(config).map_err(|error| Error::Kubeconfig(Box::new(error)))?;
        Ok(Self {
            visitor: Visitor::new(client, Arc::new(now)),
            namespace,
            output: *output,
        })
    }

    /// What there is to choose from.
    async fn names(&self, choice: Choice) -> Result<Vec<String>, Error> {
        match choice {
            Choice::Clusters => {
                let clusters = self.visitor.clusters(Some(&self.namespace)).await;
                let clusters = clusters.map_err(Error::Observe)?.unwrap_or_default();
                Ok(clusters.iter().map(|cluster| cluster.name_any()).collect())
            }
            Choice::Configs => {
                let names = self.visitor.config_names().await;
                Ok(names.map_err(Error::Observe)?.unwrap_or_default())
            }
        }
    }

    fn show(&self, answer: &impl Shown) -> Result<(), Error> {
        put(&self.form(answer)?)
    }

    fn form(&self, answer: &impl Shown) -> Result<String, Error> {
        match self.output {
            Output::Text => Ok(answer.text(print::width())),
            Output::Json => {
                let mut text = serde_json::to_string_pretty(answer).map_err(Error::Json)?;
                text.push('\n');
                Ok(text)
            }
        }
    }

    /// The clusters alone, of one namespace or of all.
    async fn clusters(
        &self,
        what: &'static str,
        namespace: Option<&str>,
    ) -> Result<Vec<Arc<ValkeyCluster>>, Error> {
        let clusters = self.visitor.clusters(namespace).await;
        clusters
            .map_err(Error::Observe)?
            .map_err(|refusal| Error::Refused {
                what,
                refusals: vec![refusal],
            })
    }

    /// The cluster that was meant, and a visit of its namespace.
    async fn find(&self, name: Option<String>) -> Result<(ClusterRef, Visit), Error> {
        let visit = self.visitor.visit(&self.namespace).await;
        let visit = visit.map_err(Error::Observe)?;
        let clusters = visit.clusters();
        let key = |name: String| ClusterRef {
            namespace: self.namespace.clone(),
            name,
        };
        listed("this", &visit, &["valkeyclusters"])?;
        let key = match (name, clusters.as_slice()) {
            (Some(name), clusters) => {
                let known = clusters.iter().any(|cluster| cluster.name_any() == name);
                let key = key(name);
                if !known {
                    return Err(Error::NoCluster(key));
                }
                key
            }
            (None, [only]) => key(only.name_any()),
            (None, clusters) => {
                return Err(Error::Unnamed {
                    namespace: self.namespace.clone(),
                    count: clusters.len(),
                });
            }
        };
        Ok((key, visit))
    }

    async fn sight(&self, name: Option<String>) -> Result<(Visit, Sight), Error> {
        let (key, visit) = self.find(name).await?;
        let sight = visit.sight(&key).await.map_err(Error::Observe)?;
        let sight = sight.ok_or(Error::NoCluster(key))?;
        Ok((visit, sight))
    }

    async fn overview(&self, all: bool, watch: bool) -> Result<Exit, Error> {
        loop {
            let namespace = (!all).then_some(self.namespace.as_str());
            let what = if all { "-A" } else { "status" };
            let clusters = self.clusters(what, namespace).await?;
            let answer = Overview::of(&clusters);
            if !self.redraw(&answer, watch).await? {
                return Ok(Exit::Done);
            }
        }
    }

    async fn status(&self, name: String, watch: bool) -> Result<Exit, Error> {
        loop {
            let (visit, sight) = self.sight(Some(name.clone())).await?;
            let place = |node: &_| visit.place(&self.namespace, node);
            let answer = Status::of(&sight, place);
            if !self.redraw(&answer, watch).await? {
                return Ok(Exit::Done);
            }
        }
    }

    /// Shows an answer; whether there is to be another one, after a pause.
    async fn redraw(&self, answer: &impl Shown, watch: bool) -> Result<bool, Error> {
        if !watch {
            self.show(answer)?;
            return Ok(false);
        }
        let text = self.form(answer)?;
        match self.output {
            Output::Text => put(&format!("{CLEAR}{text}"))?,
            Output::Json => put(&text)?,
        }
        tokio::time::sleep(REDRAW).await;
        Ok(true)
    }

    async fn plan(&self, name: Option<String>) -> Result<Exit, Error> {
        let (_, sight) = self.sight(name).await?;
        whole("a plan", &sight)?;
        self.show(&Plan::of(&sight.world))?;
        Ok(Exit::Done)
    }
}

/// Writes an answer. Whoever reads may have gone, as `head` does: that is no failure.
fn put(text: &str) -> Result<(), Error> {
    match anstream::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(Error::Write),
    }
}

/// Refuses to answer without these kinds.
fn listed(what: &'static str, visit: &Visit, kinds: &[&str]) -> Result<(), Error> {
    let refused = visit.refusals();
    let refused = refused.filter(|one| kinds.contains(&one.resource.as_str()));
    allowed(what, refused.cloned().collect())
}

/// Refuses to decide on less than the operator knows.
fn whole(what: &'static str, sight: &Sight) -> Result<(), Error> {
    allowed(what, sight.gaps().cloned().collect())
}

fn allowed(what: &'static str, refusals: Vec<Refusal>) -> Result<(), Error> {
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(Error::Refused { what, refusals })
    }
}

/// The line that an answer about a cluster begins with.
fn name_of(namespace: &str, name: &str, state: ClusterState) -> String {
    let head = Tone::Head.paint(&format!("{namespace}/{name}"));
    format!("{head}  {}\n", tone_of(state).paint(&format!("{state:?}")))
}

fn tone_of(state: ClusterState) -> Tone {
    match state {
        ClusterState::Active => Tone::Good,
        ClusterState::Creating | ClusterState::Updating => Tone::Busy,
        ClusterState::Invalid => Tone::Bad,
    }
}

fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// An error and its causes in one line.
#[must_use]
pub fn complaint(error: &Error) -> String {
    format!("error: {}\n", chain::of(error))
}
