//! The alert rules before Prometheus' own tool: each fires when it should, says what it should, and else is quiet.
//! ALL=1, for that tool is compiled first. Never a server: the tool plays the series of `alerts_test.yaml`.

use std::path::Path;
use std::process::Command;

use crate::testbed::binaries;
use crate::testbed::command::finish;
use crate::thorough;

#[test]
fn each_alert_fires_when_it_should_and_not_before() {
    if !thorough("each_alert_fires_when_it_should_and_not_before") {
        return;
    }
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/monitoring");
    let program = binaries::program("promtool").expect("promtool");
    for words in [
        ["check", "rules", "--lint-fatal", "alerts.yaml"].as_slice(),
        ["test", "rules", "alerts_test.yaml"].as_slice(),
    ] {
        let mut promtool = Command::new(&program);
        promtool.args(words).current_dir(&rules);
        finish(&mut promtool).expect("the rules hold");
    }
}
