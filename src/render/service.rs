//! The headless Service: the seed address of every client and the DNS name of every pod.
//! Never balances, never waits for readiness: the cluster protocol knows who is healthy.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::core::v1::ServicePort;
use k8s_openapi::api::core::v1::ServiceSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::api;
use crate::model::world::ClusterFacts;
use crate::render::labels;
use crate::render::owned_by_cluster;

/// The Service of a cluster.
#[must_use]
pub fn service(cluster: &ClusterFacts) -> Service {
    Service {
        metadata: owned_by_cluster(cluster, cluster.key.service_name()),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            cluster_ip: Some("None".to_owned()),
            // A node must be reachable by name before it serves, to be met and to sync.
            publish_not_ready_addresses: Some(true),
            selector: Some(labels(&cluster.key)),
            ports: Some(vec![
                port(api::PORT_NAME, api::PORT),
                port(api::BUS_PORT_NAME, api::BUS_PORT),
            ]),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// A TCP port that is the same in the pod.
fn port(name: &str, port: u16) -> ServicePort {
    ServicePort {
        name: Some(name.to_owned()),
        port: i32::from(port),
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(i32::from(port))),
        ..ServicePort::default()
    }
}
