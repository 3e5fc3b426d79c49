//! Files that are made from the code, held equal to it.
//! Never edited by hand: `make bless` writes them.

use std::fs;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use operator::api;
use serde_json::{Value, json};

#[test]
fn crds_json_holds_the_five_kinds() {
    equals("crds/crds.json", &pretty(&definitions()));
}

#[test]
fn printer_columns_are_the_documented_ones() {
    let columns: Vec<String> = api::definitions().iter().map(columns).collect();
    let documented = [
        "ValkeyImage Cluster: Repository .spec.repository, Tag .spec.tag, Version .spec.version",
        "ValkeyConfig Cluster: ImageRef .spec.imageRef, BaseRef .spec.baseRef",
        "ValkeyRole Cluster: Age .metadata.creationTimestamp",
        "ValkeyCluster Namespaced: Config .spec.configRef, Shards .spec.shards, \
         Replicas .spec.replicasPerShard, State .status.state",
        "ValkeyNode Namespaced: Cluster .spec.clusterName, Image .spec.image, \
         Lifecycle .spec.lifecycle",
    ];
    assert_eq!(columns, documented);
}

/// What of the release a chart's user may change, and into what.
const CHOICES: [(&str, &str); 6] = [
    (
        "namespace: valkey-operator",
        "namespace: {{ .Release.Namespace }}",
    ),
    (
        "image: valkey-operator:0.1.0",
        "image: {{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}",
    ),
    (
        "defaultZoneSpread: bestEffort",
        "defaultZoneSpread: {{ .Values.defaultZoneSpread }}",
    ),
    ("value: info", "value: {{ .Values.log | quote }}"),
    (
        "      serviceAccountName: valkey-operator\n",
        "      serviceAccountName: valkey-operator
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . }}
        {{- end }}
      {{- end }}
      {{- with .Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
",
    ),
    (
        "          resources:\n",
        "          resources:
            {{- toYaml .Values.resources | nindent 12 }}
",
    ),
];

/// All but the Namespace, which is Helm's to make, and with the values that the release has.
#[test]
fn the_chart_is_the_release() {
    let release = read("deploy/operator.yaml");
    let mut documents = release.split("---\n");
    let namespace = documents.next().expect("a first document");
    assert!(namespace.contains("kind: Namespace\n"), "{namespace}");
    let mut chart = documents.collect::<Vec<_>>().join("---\n");

    let resources = block(&chart, "          resources:\n", 12);
    chart = chart.replace(&resources, "");
    let values = read("deploy/chart/values.yaml");
    let default = block(&values, "resources:\n", 2);
    let indented = default.lines().map(|line| format!("          {line}\n"));
    assert_eq!(indented.collect::<String>(), resources);
    for line in [
        "defaultZoneSpread: bestEffort",
        "log: info",
        "  repository: valkey-operator",
    ] {
        assert!(values.lines().any(|value| value == line), "{line}");
    }

    for (fixed, chosen) in CHOICES {
        assert!(chart.contains(fixed), "the release has no {fixed:?}");
        chart = chart.replace(fixed, chosen);
    }
    equals("deploy/chart/templates/operator.yaml", &chart);
}

#[test]
fn every_artifact_has_the_version_of_the_package() {
    let version = env!("CARGO_PKG_VERSION");
    let chart = read("deploy/chart/Chart.yaml");
    for field in ["version", "appVersion"] {
        let line = format!("{field}: {version}");
        assert!(chart.lines().any(|there| there == line), "no {line}");
    }
    let image = format!("image: valkey-operator:{version}\n");
    assert!(read("deploy/operator.yaml").contains(&image), "no {image}");
    let heading = format!("## {version}");
    let changes = read("CHANGELOG.md");
    assert!(
        changes.lines().any(|line| line.starts_with(&heading)),
        "no {heading}"
    );
}

/// The lines after this one that are indented by so much at the least.
fn block(text: &str, head: &str, indent: usize) -> String {
    let (_, rest) = text
        .split_once(head)
        .unwrap_or_else(|| panic!("no {head:?}"));
    let inside = |line: &&str| line.len() - line.trim_start().len() >= indent;
    rest.split_inclusive('\n').take_while(inside).collect()
}

/// A file of the package.
pub(crate) fn read(path: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Each kind, and the fields of its spec and of its status, as far as it has one.
#[test]
fn the_kinds_have_the_published_fields_and_no_others() {
    let published = [
        "ValkeyImage: pullSecrets repository tag version / -",
        "ValkeyConfig: acl baseRef imageRef resources scheduling valkey / -",
        "ValkeyRole: categories commands / -",
        "ValkeyCluster: acl configRef placement podAnnotations replicasPerShard shards tls / \
         message nodes state targetSpec",
        "ValkeyNode: clusterName cpu image lifecycle memory placement shardIndex tlsSecret valkeySettings",
    ];
    let fields: Vec<String> = api::definitions().iter().map(fields).collect();
    assert_eq!(fields, published);
}

fn fields(definition: &CustomResourceDefinition) -> String {
    let definition = json!(definition);
    let version = &definition["spec"]["versions"][0];
    let names = |part: &str| {
        let fields = &version["schema"]["openAPIV3Schema"]["properties"][part]["properties"];
        let mut names: Vec<&str> = fields
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        if names.is_empty() {
            "-".to_owned()
        } else {
            names.join(" ")
        }
    };
    let kind = definition["spec"]["names"]["kind"]
        .as_str()
        .expect("a kind");
    let spec = format!("{kind}: {}", names("spec"));
    if version["subresources"]["status"].is_null() {
        return spec;
    }
    format!("{spec} / {}", names("status"))
}

fn columns(definition: &CustomResourceDefinition) -> String {
    let version = &definition.spec.versions[0];
    let columns = version.additional_printer_columns.iter().flatten();
    let columns: Vec<String> = columns
        .map(|column| format!("{} {}", column.name, column.json_path))
        .collect();
    let spec = &definition.spec;
    format!("{} {}: {}", spec.names.kind, spec.scope, columns.join(", "))
}

/// One object, so that one `kubectl apply -f` installs all five.
fn definitions() -> Value {
    json!({"apiVersion": "v1", "kind": "List", "items": api::definitions()})
}

fn pretty(value: &Value) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("JSON prints");
    text.push('\n');
    text
}

/// Holds a file of the package equal to what the code makes, or writes it where asked to.
fn equals(path: &str, made: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var("UPDATE_EXPECT").is_ok_and(|value| value == "1") {
        fs::write(&file, made).expect("the file can be written");
        return;
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    if kept == made {
        return;
    }
    let mut lines = kept.lines().zip(made.lines()).enumerate();
    let (number, (kept, made)) = lines
        .find(|(_, (kept, made))| kept != made)
        .unwrap_or((0, ("(shorter)", "(longer)")));
    panic!(
        "{path} is not what the code makes: `make bless` writes it anew\n\
         line {}\n  kept: {kept}\n  made: {made}",
        number + 1
    );
}
