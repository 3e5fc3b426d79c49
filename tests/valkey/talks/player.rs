//! Plays a talk on a stage, and says where it went otherwise than written.
//! Never knows whether the servers there are real.

use std::fmt::Write as _;
use std::time::Duration;

use super::names::Names;
use super::reply::Answer;
use super::reply::Reply;
use super::script::Asked;
use super::script::Condition;
use super::script::Name;
use super::script::Settings;
use super::script::Signal;
use super::script::Step;
use super::script::Switch;
use super::script::Talk;
use super::script::What;

/// The longest that anything in a talk takes.
const LIMIT: Duration = Duration::from_secs(45);

/// Who records waits until nothing has changed for so long; who replays needs not.
const SETTLED: Duration = Duration::from_secs(4);

/// How long a question of the player's own may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where servers run, and where time passes.
pub(crate) trait Stage {
    /// Starts a server for the first time. If it ends at once, what it says of the reason.
    fn start(&mut self, name: Name, address: &str, settings: &Settings) -> Result<(), String>;
    /// Starts it again, with its files or with nothing but its configuration.
    fn again(&mut self, name: Name, empty: bool) -> Result<(), String>;
    fn signal(&mut self, name: Name, signal: Signal);
    /// Its exit code, once it has ended.
    fn ended(&mut self, name: Name) -> Option<i32>;
    /// On the one connection that this user has to this server.
    fn ask(&mut self, name: Name, user: &str, words: &[String], patience: Duration) -> Answer;
    /// Packets on these ports from the one address to the other are lost.
    fn cut(&mut self, from: &str, to: &str, ports: &[u16]);
    fn heal(&mut self);
    fn switch(&mut self, name: Name, switch: Switch, on: bool);
    /// Its next full sync, of 20 keys, takes so much longer.
    fn slow(&mut self, name: Name, span: Duration);
    /// What its files' paths begin with.
    fn directory(&self, name: Name) -> String;
    /// Changes the lines of its ACL file.
    fn acl(&mut self, name: Name, edit: &dyn Fn(&mut Vec<String>));
    fn wait(&mut self, span: Duration);
    /// A moment, between two looks at a condition.
    fn pause(&mut self);
    /// Since some moment.
    fn now(&self) -> Duration;
}

/// Where a talk and its servers differ.
#[derive(Debug, Clone)]
pub(crate) struct Difference {
    pub(crate) line: usize,
    pub(crate) step: String,
    pub(crate) expected: Vec<String>,
    pub(crate) got: Vec<String>,
}

/// New replies, by the line of their step.
pub(crate) type Replies = Vec<(usize, Vec<String>)>;

pub(crate) struct Player<'a> {
    stage: &'a mut dyn Stage,
    names: Names,
    mark: Duration,
    recording: bool,
    replies: Replies,
}

impl<'a> Player<'a> {
    pub(crate) fn new(stage: &'a mut dyn Stage, recording: bool) -> Self {
        let (mark, names, replies) = (stage.now(), Names::default(), Vec::new());
        Self {
            stage,
            names,
            mark,
            recording,
            replies,
        }
    }

    /// What the servers answered, or the first difference. Who records finds differences only in what
    /// never comes.
    pub(crate) fn play(mut self, talk: &Talk) -> Result<Replies, Difference> {
        for step in &talk.steps {
            self.step(step).map_err(|(expected, got)| Difference {
                line: step.line,
                step: step.text.clone(),
                expected,
                got,
            })?;
        }
        Ok(self.replies)
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match &step.what {
            What::Servers(names, settings) => names
                .iter()
                .try_for_each(|name| self.start(*name, settings))?,
            What::ServerAt(name, at) => {
                self.names.take_address(*name, *at);
                self.start(*name, &Vec::new())?;
            }
            What::Refuse(name, settings) => self.refuse(step, *name, settings)?,
            What::Cluster(shards, settings) => self.cluster(shards, settings)?,
            What::Signal(name, signal) => self.stage.signal(*name, *signal),
            What::End(name) => self.end(step, *name)?,
            What::Start { name, empty } => match self.stage.again(*name, *empty) {
                Ok(()) => {
                    self.identify(*name)?;
                    self.compare(step, Vec::new())?;
                }
                Err(said) => self.compare_said(step, *name, &said)?,
            },
            What::Cut {
                from,
                to,
                both,
                ports,
            } => {
                let (from, to) = (self.names.address(*from), self.names.address(*to));
                self.stage.cut(&from, &to, ports);
                if *both {
                    self.stage.cut(&to, &from, ports);
                }
            }
            What::Heal => self.stage.heal(),
            What::Switch(name, switch, on) => self.stage.switch(*name, *switch, *on),
            What::AclAdd(name, line) => self.stage.acl(*name, &|lines| lines.push(line.clone())),
            What::AclDrop(name, line) => self
                .stage
                .acl(*name, &|lines| lines.retain(|kept| !kept.starts_with(line))),
            What::Fill { name, tag, count } => {
                for number in 0..*count {
                    let key = format!("{tag}{number}");
                    self.words(*name, "admin", &["SET", &key, &incompressible(number)]);
                }
            }
            What::Slow(name, span) => self.stage.slow(*name, *span),
            What::Wait(span) => self.stage.wait(*span),
            What::Mark => self.mark = self.stage.now(),
            What::Took(from, to) => {
                let took = self.stage.now().saturating_sub(self.mark);
                if !(*from..=*to).contains(&took) {
                    let expected = format!("{from:?} to {to:?}");
                    return Err((vec![expected], vec![format!("{took:?}")]));
                }
            }
            What::Ask { asked, settled } => self.asked(step, asked, *settled)?,
            What::Until { asked, condition } => self.until(asked, condition)?,
            What::For {
                asked,
                condition,
                span,
            } => self.all_the_time(asked, condition, *span)?,
        }
        Ok(())
    }

    fn refuse(&mut self, step: &Step, name: Name, settings: &Settings) -> Outcome {
        let address = self.names.address(name);
        let Err(said) = self.stage.start(name, &address, settings) else {
            return Err(never(format!("{name} runs")));
        };
        self.compare_said(step, name, &said)
    }

    /// Why a server ended at once.
    fn compare_said(&mut self, step: &Step, name: Name, said: &str) -> Outcome {
        let place = self.stage.directory(name);
        let lines = said.lines().map(|line| line.replace(&place, ""));
        let lines = lines.filter(|line| !line.trim().is_empty());
        self.compare(step, lines.map(|line| format!("{name}< {line}")).collect())
    }

    fn start(&mut self, name: Name, settings: &Settings) -> Outcome {
        let address = self.names.address(name);
        self.stage.start(name, &address, settings).map_err(never)?;
        self.identify(name)
    }

    /// Its id may be another one than before.
    fn identify(&mut self, name: Name) -> Outcome {
        let answer = self.words(name, "admin", &["CLUSTER", "MYID"]);
        if let Answer::Reply(Reply::Bulk(id)) = answer {
            self.names.identify(name, &id);
            return Ok(());
        }
        Err(never(format!("{name} says of its id: {answer:?}")))
    }

    fn end(&mut self, step: &Step, name: Name) -> Outcome {
        let deadline = self.stage.now() + LIMIT;
        loop {
            if let Some(code) = self.stage.ended(name) {
                return self.compare(step, vec![format!("{name}< (ended {code})")]);
            }
            if self.stage.now() > deadline {
                return Err(never(format!("{name} has not ended")));
            }
            self.stage.pause();
        }
    }

    /// What the step says, held against what is now so.
    fn compare(&mut self, step: &Step, got: Vec<String>) -> Outcome {
        if !self.recording && got != step.expected {
            return Err((step.expected.clone(), got));
        }
        self.replies.push((step.line, got));
        Ok(())
    }

    fn asked(&mut self, step: &Step, asked: &Asked, settled: bool) -> Outcome {
        let begin = self.names.clone();
        let mut got = self.answers(asked);
        let reset = asked
            .words
            .get(1)
            .is_some_and(|word| word.eq_ignore_ascii_case("RESET"));
        if asked.words[0].eq_ignore_ascii_case("CLUSTER") && reset {
            for name in &asked.who {
                self.identify(*name)?;
            }
        }
        let mut since = self.stage.now();
        let deadline = since + LIMIT;
        let recording = self.recording;
        let waits = |got: &Vec<String>, since: Duration, now: Duration| {
            if recording {
                now < since + SETTLED
            } else {
                *got != step.expected
            }
        };
        while settled && waits(&got, since, self.stage.now()) && self.stage.now() < deadline {
            self.stage.pause();
            self.names = begin.clone();
            let next = self.answers(asked);
            if next != got {
                since = self.stage.now();
                got = next;
            }
        }
        self.compare(step, got)
    }

    /// Of each, every line with its name before it.
    fn answers(&mut self, asked: &Asked) -> Vec<String> {
        let mut lines = Vec::new();
        for name in &asked.who {
            let answer = self.one(*name, asked);
            let place = self.stage.directory(*name);
            let placed = answer.iter().map(|line| line.replace(&place, ""));
            lines.extend(placed.map(|line| format!("{name}< {line}")));
        }
        lines
    }

    fn one(&mut self, name: Name, asked: &Asked) -> Vec<String> {
        let words: Vec<String> = asked
            .words
            .iter()
            .map(|word| self.names.filled(word))
            .collect();
        let answer = self.stage.ask(name, &asked.user, &words, asked.patience);
        self.names.lines(&words, &asked.picks, &answer)
    }

    /// Does not count the ids of strangers that it sees on its way.
    fn looks(&mut self, asked: &Asked, condition: &Condition) -> Result<(), Vec<String>> {
        for name in &asked.who {
            let before = self.names.clone();
            let lines = self.one(*name, asked);
            self.names = before;
            if !condition.holds(&lines) {
                return Err(lines.iter().map(|line| format!("{name}< {line}")).collect());
            }
        }
        Ok(())
    }

    fn until(&mut self, asked: &Asked, condition: &Condition) -> Outcome {
        let deadline = self.stage.now() + LIMIT;
        loop {
            match self.looks(asked, condition) {
                Ok(()) => return Ok(()),
                Err(got) if self.stage.now() > deadline => {
                    return Err((vec![format!("{condition:?}")], got));
                }
                Err(_) => self.stage.pause(),
            }
        }
    }

    fn all_the_time(&mut self, asked: &Asked, condition: &Condition, span: Duration) -> Outcome {
        let deadline = self.stage.now() + span;
        while self.stage.now() < deadline {
            self.looks(asked, condition)
                .map_err(|got| (vec![format!("{condition:?} for {span:?}")], got))?;
            self.stage.pause();
        }
        Ok(())
    }

    /// As our operator forms one.
    fn cluster(&mut self, shards: &[Vec<Name>], settings: &Settings) -> Outcome {
        let all: Vec<Name> = shards.iter().flatten().copied().collect();
        for name in &all {
            self.start(*name, settings)?;
        }
        // As every orchestrator should, so that no two are equal and all are the same in every run.
        for (epoch, name) in (1..).zip(&all) {
            let epoch = i32::to_string(&epoch);
            self.words(*name, "operator", &["CLUSTER", "SET-CONFIG-EPOCH", &epoch]);
        }
        for name in &all[1..] {
            self.meet(all[0], *name);
        }
        let count = format!("cluster_known_nodes:{}", all.len());
        self.all_say(&all, "CLUSTER INFO", &Condition::Has(count))?;
        self.all_say(
            &all,
            "CLUSTER NODES",
            &Condition::Lacks("handshake".to_owned()),
        )?;
        let share = 16384_usize.div_ceil(shards.len());
        let mut begin = 0;
        for shard in shards {
            let end = (begin + share).min(16384);
            let range = [begin.to_string(), (end - 1).to_string()];
            let words = ["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]];
            self.words(shard[0], "operator", &words);
            begin = end;
            for other in &all {
                if *other != shard[0] {
                    self.meet(shard[0], *other);
                }
            }
        }
        for assigned in ["cluster_slots_assigned:16384", "cluster_state:ok"] {
            self.all_say(&all, "CLUSTER INFO", &Condition::Has(assigned.to_owned()))?;
        }
        self.replicas(shards)?;
        self.all_say(
            &all,
            "CLUSTER NODES",
            &Condition::Lacks("disconnected".to_owned()),
        )?;
        let epoch = format!("cluster_current_epoch:{}", all.len());
        self.all_say(&all, "CLUSTER INFO", &Condition::Has(epoch))
    }

    fn replicas(&mut self, shards: &[Vec<Name>]) -> Outcome {
        let all: Vec<Name> = shards.iter().flatten().copied().collect();
        for shard in shards {
            let id = self.names.id(shard[0]).to_owned();
            for replica in &shard[1..] {
                self.words(*replica, "operator", &["CLUSTER", "REPLICATE", &id]);
            }
        }
        for shard in shards {
            for replica in &shard[1..] {
                let up = Condition::Has("master_link_status:up".to_owned());
                self.all_say(&[*replica], "INFO replication", &up)?;
                let row = format!("<{}> .", shard[0]);
                let others: Vec<Name> =
                    all.iter().copied().filter(|name| name != replica).collect();
                let rows = format!("CLUSTER NODES | {replica}");
                self.all_say(&others, &rows, &Condition::Has(row))?;
            }
        }
        Ok(())
    }

    fn meet(&mut self, from: Name, to: Name) {
        let address = self.names.address(to);
        self.words(from, "operator", &["CLUSTER", "MEET", &address, "6379"]);
    }

    fn words(&mut self, name: Name, user: &str, words: &[&str]) -> Answer {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        self.stage.ask(name, user, &words, PATIENCE)
    }

    fn all_say(&mut self, who: &[Name], command: &str, condition: &Condition) -> Outcome {
        let asked = Asked::of(who, command);
        self.until(&asked, condition)
    }
}

/// What was expected, and what was got instead.
type Outcome = Result<(), (Vec<String>, Vec<String>)>;

/// Some kilobytes that a dump stores as they are.
fn incompressible(number: usize) -> String {
    let mut text = String::new();
    let mut state = u64::try_from(number).unwrap();
    for _ in 0..256 {
        // The constants of Knuth's MMIX.
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        write!(text, "{state:016x}").unwrap();
    }
    text
}

fn never(got: String) -> (Vec<String>, Vec<String>) {
    (Vec::new(), vec![got])
}
