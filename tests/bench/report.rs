//! Samples as a table for people and as a file for later.
//! Never judges seconds: a goal is a ratio of medians.

use std::path::Path;
use std::path::PathBuf;

use serde_json::Value;
use serde_json::json;

use crate::stage::Failure;
use crate::stage::Sample;

/// Ours and the floor, under the same name.
pub(crate) struct Comparison {
    name: &'static str,
    goal: f64,
    pub(crate) ours: Vec<Sample>,
    pub(crate) floor: Vec<Sample>,
}

impl Comparison {
    pub(crate) fn new(name: &'static str, goal: f64) -> Self {
        Self {
            name,
            goal,
            ours: Vec::new(),
            floor: Vec::new(),
        }
    }

    fn ratio(&self) -> f64 {
        median(&self.ours) / median(&self.floor)
    }

    pub(crate) fn holds(&self) -> bool {
        self.ratio() <= self.goal
    }

    fn line(&self) -> String {
        format!(
            "{:<22} {:>22} {:>22} {:>7.2} {:>6.2} {}",
            self.name,
            cell(&self.ours),
            cell(&self.floor),
            self.ratio(),
            self.goal,
            if self.holds() { "holds" } else { "MISSED" }
        )
    }
}

fn sorted(samples: &[Sample]) -> Vec<f64> {
    let mut took: Vec<f64> = samples.iter().map(|sample| sample.took).collect();
    took.sort_by(f64::total_cmp);
    took
}

/// The middle one, or the mean of the two in the middle; not a number where there is none.
fn median(samples: &[Sample]) -> f64 {
    let took = sorted(samples);
    let middle = took.len() / 2;
    let at = |index: usize| took.get(index).copied().unwrap_or(f64::NAN);
    if took.len() % 2 == 1 {
        at(middle)
    } else {
        f64::midpoint(at(middle), at(middle.wrapping_sub(1)))
    }
}

/// Seconds are printed to be read; only the ratio is held against the goal.
pub(crate) fn table(comparisons: &[Comparison]) -> String {
    let head = format!(
        "{:<22} {:>22} {:>22} {:>7} {:>6}",
        "", "ours: median min-max", "floor: median min-max", "ratio", "goal"
    );
    let lines = comparisons.iter().map(Comparison::line);
    let lines: Vec<String> = [head].into_iter().chain(lines).chain([machine()]).collect();
    lines.join("\n")
}

fn cell(samples: &[Sample]) -> String {
    let took = sorted(samples);
    let edge = |edge: Option<&f64>| edge.copied().unwrap_or(f64::NAN);
    let (least, most) = (edge(took.first()), edge(took.last()));
    format!("{:.2} {least:.2}-{most:.2} s", median(samples))
}

fn machine() -> String {
    format!("{} x {}, load {}", cores(), processor(), load())
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    model
        .map_or("unknown", |model| {
            model.trim_start_matches([' ', '\t', ':'])
        })
        .to_owned()
}

fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// Where the raw samples and the operator's log are kept.
pub(crate) fn directory() -> Result<PathBuf, Failure> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/bench");
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Writes every sample to a file below `target`.
pub(crate) fn keep(comparisons: &[Comparison], kubernetes: &Value) -> Result<PathBuf, Failure> {
    let samples = |samples: &[Sample]| -> Vec<Value> {
        let one = |sample: &Sample| json!({"took_s": sample.took, "spread_s": sample.spread, "steps_s": sample.steps});
        samples.iter().map(one).collect()
    };
    let comparisons: Vec<Value> = comparisons
        .iter()
        .map(|comparison| {
            json!({
                "name": comparison.name,
                "goal": comparison.goal,
                "ratio": comparison.ratio(),
                "ours": samples(&comparison.ours),
                "floor": samples(&comparison.floor),
            })
        })
        .collect();
    let report = json!({
        "operator": env!("CARGO_PKG_VERSION"),
        "valkey": "9.1.2",
        "kubernetes": kubernetes["serverVersion"]["gitVersion"],
        "processor": processor(),
        "cores": cores(),
        "load": load(),
        "comparisons": comparisons,
    });
    let path = directory()?.join("bootstrap.json");
    std::fs::write(&path, serde_json::to_vec_pretty(&report)?)?;
    Ok(path)
}
