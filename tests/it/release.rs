//! `deploy/release.sh` with stand-ins for the programs that take long: which files it makes, and that their checksums hold.
//! Never builds anything, and never touches the package's own dist.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

/// Each does what the script counts on, and no more.
const STAND_INS: [(&str, &str); 3] = [
    ("git", "echo 1700000000"),
    (
        "buildah",
        r#"case "$*" in
*pull*) echo id ;;
*push*) for last; do :; done; last=${last#docker-archive:}; echo image > "${last%%:*}" ;;
esac"#,
    ),
    (
        "cargo",
        r#"case "$1" in
build) mkdir -p target/dist; for program in valkey-operator kubectl-valkey; do echo $program > target/dist/$program; done ;;
run) echo valkey-operator:test archive.tar ;;
cyclonedx) for last; do :; done; [ "$last" = --version ] || echo '{}' > "$last.json" ;;
esac"#,
    ),
];

/// The parts of the package that the script reads.
const PARTS: [&str; 4] = ["Cargo.toml", "crds", "config", "deploy"];

fn shell(directory: &Path, script: &str) -> String {
    let path = std::env::var("PATH").expect("a PATH");
    let stand_ins = directory.join("stand-ins");
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]).current_dir(directory);
    shell.env("PATH", format!("{}:{path}", stand_ins.display()));
    let output = shell.output().expect("a shell");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {told}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn a_release_has_all_its_files_and_their_checksums() {
    let package = env!("CARGO_MANIFEST_DIR");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("release");
    if place.exists() {
        fs::remove_dir_all(&place).expect("removed");
    }
    fs::create_dir_all(place.join("stand-ins")).expect("made");
    for part in PARTS {
        shell(&place, &format!("cp -R '{package}/{part}' ."));
    }
    for (name, script) in STAND_INS {
        let file = place.join("stand-ins").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("executable");
    }
    shell(&place, "sh deploy/release.sh");

    let version = env!("CARGO_PKG_VERSION");
    let platform = format!("{version}-linux-{}", shell(&place, "uname -m").trim());
    let expected = [
        "SHA256SUMS".to_owned(),
        "alerts.yaml".to_owned(),
        "crds.json".to_owned(),
        "dashboard.json".to_owned(),
        format!("kubectl-valkey-{platform}.tar.gz"),
        "operator.yaml".to_owned(),
        "roles.yaml".to_owned(),
        format!("valkey-operator-{platform}.tar.gz"),
        format!("valkey-operator-{version}.cdx.json"),
        format!("valkey-operator-chart-{version}.tgz"),
        format!("valkey-operator-image-{platform}.tar"),
    ];
    let made = shell(&place, "ls dist");
    let made: BTreeSet<&str> = made.lines().collect();
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(made, expected);
    let sums = shell(
        &place,
        "cd dist && sha256sum --check --quiet SHA256SUMS && wc -l < SHA256SUMS",
    );
    assert_eq!(sums.trim(), (expected.len() - 1).to_string());
    let plugin = shell(&place, "tar -tf dist/kubectl-valkey-*.tar.gz");
    assert_eq!(plugin, "kubectl-valkey\nkubectl_complete-valkey\n");
    let chart = shell(&place, "tar -tf dist/valkey-operator-chart-*.tgz");
    assert!(
        chart.contains("valkey-operator/templates/operator.yaml\n"),
        "{chart}"
    );
}
