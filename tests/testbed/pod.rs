//! The processes in a pod, found from outside by the control groups of its containers.
//! Never needs a program in the container.

use std::fs;

use serde_json::Value;

use super::Testbed;
use super::command::run;
use super::error::Error;
use super::machine::Signal;
use super::node;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PodName<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// As seen from outside, so that `kill` there ends it.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: String,
    pub(crate) name: String,
}

/// Every process of the pod's containers.
pub(crate) fn processes(testbed: &Testbed, pod: &PodName<'_>) -> Result<Vec<Process>, Error> {
    let words = [
        "get",
        "pod",
        "--namespace",
        pod.namespace,
        pod.name,
        "--output",
        "json",
    ];
    let text = testbed.kubectl(words)?;
    let what = format!("pod {}/{}", pod.namespace, pod.name);
    let pod: Value = serde_json::from_str(&text).map_err(|source| Error::Json {
        what: what.clone(),
        source,
    })?;
    let node_name = text_at(&pod, "/spec/nodeName");
    let node = testbed.node(node_name)?;
    let statuses = pod
        .pointer("/status/containerStatuses")
        .and_then(Value::as_array);
    let mut processes = Vec::new();
    for status in statuses.into_iter().flatten() {
        let id = text_at(status, "/containerID");
        let Some(id) = id.strip_prefix("containerd://") else {
            continue;
        };
        for pid in node::container_processes(&testbed.machine, node, id) {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            processes.push(Process { pid, name });
        }
    }
    if processes.is_empty() {
        return Err(Error::Refused(format!(
            "{what} has no process on {node_name:?}"
        )));
    }
    Ok(processes)
}

pub(crate) fn signal(
    testbed: &Testbed,
    pod: &PodName<'_>,
    process: Option<&str>,
    signal: Signal,
) -> Result<(), Error> {
    let mut processes = processes(testbed, pod)?;
    processes.retain(|found| process.is_none_or(|name| found.name == name));
    if processes.is_empty() {
        return Err(Error::Refused(format!(
            "pod {}/{} has no process named {process:?}",
            pod.namespace, pod.name
        )));
    }
    let pids = processes.into_iter().map(|process| process.pid);
    run(["kill", signal.flag()]
        .map(str::to_owned)
        .into_iter()
        .chain(pids))
    .map(drop)
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
