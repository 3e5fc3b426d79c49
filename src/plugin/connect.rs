//! `connect`: the seed, the authority and a first line in five languages.
//! Never a password: it names the user whose one is needed.

use serde::Serialize;

use crate::api::PORT;
use crate::api::cluster::ClusterState;
use crate::model::world::World;
use crate::plugin::print::{Tone, said};
use crate::plugin::{Desk, Error, Exit, Shown, name_of};
use crate::resolve;

/// How clients find a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Connect {
    namespace: String,
    name: String,
    state: ClusterState,
    host: String,
    port: u16,
    tls: bool,
    /// The Secret whose `ca.crt` signs for the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    ca_secret: Option<String>,
    /// Users with a binding; without any the cluster is open.
    users: Vec<String>,
    snippets: Vec<Snippet>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Snippet {
    client: &'static str,
    code: String,
}

impl Connect {
    /// What a World tells.
    pub(crate) fn of(world: &World) -> Self {
        let (key, spec) = (&world.cluster.key, &world.cluster.spec);
        let host = key.service_host();
        let users: Vec<String> = match resolve::desired(world).menu {
            Ok(resolved) => {
                let users = resolved.users.into_iter();
                users.map(|user| user.binding.username).collect()
            }
            // What the cluster itself binds is known all the same.
            Err(_) => spec.acl.iter().map(|user| user.username.clone()).collect(),
        };
        let access = Access {
            host: &host,
            user: users.first().map(String::as_str),
            tls: spec.tls.is_some(),
        };
        Self {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            state: world.cluster.status.state,
            port: PORT,
            tls: access.tls,
            ca_secret: spec.tls.as_ref().map(|tls| tls.secret_ref.clone()),
            snippets: access.snippets(),
            host,
            users,
        }
    }

    /// How to get at the authority.
    fn ca_command(&self) -> Option<String> {
        let secret = self.ca_secret.as_ref()?;
        let template = r#"{{index .data "ca.crt" | base64decode}}"#;
        Some(format!(
            "kubectl get secret {secret} -n {} -o go-template='{template}' > ca.crt",
            self.namespace
        ))
    }
}

struct Access<'a> {
    host: &'a str,
    user: Option<&'a str>,
    tls: bool,
}

impl Access<'_> {
    fn snippets(&self) -> Vec<Snippet> {
        let all = [
            ("valkey-cli", self.cli()),
            ("Python, valkey-py", self.python()),
            ("Go, valkey-go", self.go()),
            ("Java, Jedis", self.java()),
            ("Node.js, iovalkey", self.node()),
            ("Rust, redis", self.rust()),
        ];
        all.map(|(client, code)| Snippet { client, code }).into()
    }

    /// Its words where a user has to log in.
    fn login(&self, words: impl FnOnce(&str) -> String) -> String {
        self.user.map(words).unwrap_or_default()
    }

    fn secure(&self, words: &str) -> String {
        if self.tls {
            words.to_owned()
        } else {
            String::new()
        }
    }

    fn cli(&self) -> String {
        let (host, tls) = (self.host, self.secure(" --tls --cacert ca.crt"));
        let login = self.login(|user| format!(" --user {user} --askpass"));
        format!("valkey-cli -c -h {host} -p {PORT}{tls}{login} PING")
    }

    fn python(&self) -> String {
        let login = self.login(|user| format!(", username=\"{user}\", password=password"));
        let tls = self.secure(", ssl=True, ssl_ca_certs=\"ca.crt\"");
        format!(
            "valkey.ValkeyCluster(host=\"{}\", port={PORT}{login}{tls})",
            self.host
        )
    }

    fn go(&self) -> String {
        let login = self.login(|user| format!(", Username: \"{user}\", Password: password"));
        let tls = self.secure(", TLSConfig: &tls.Config{RootCAs: authorities}");
        let seed = format!("InitAddress: []string{{\"{}:{PORT}\"}}", self.host);
        format!("valkey.NewClient(valkey.ClientOption{{{seed}{login}{tls}}})")
    }

    fn java(&self) -> String {
        let login = self.login(|user| format!(".user(\"{user}\").password(password)"));
        let tls = self.secure(".ssl(true).sslSocketFactory(factory)");
        format!(
            "new JedisCluster(new HostAndPort(\"{}\", {PORT}), \
             DefaultJedisClientConfig.builder(){login}{tls}.build())",
            self.host
        )
    }

    fn node(&self) -> String {
        let login = self.login(|user| format!("username: \"{user}\", password"));
        let tls = self.secure("tls: { ca: readFileSync(\"ca.crt\") }");
        let options = [login, tls].into_iter().filter(|words| !words.is_empty());
        let options = options.collect::<Vec<_>>().join(", ");
        let options = if options.is_empty() {
            options
        } else {
            format!(", {{ redisOptions: {{ {options} }} }}")
        };
        format!(
            "new Valkey.Cluster([{{ host: \"{}\", port: {PORT} }}]{options})",
            self.host
        )
    }

    fn rust(&self) -> String {
        let login = self.login(|user| format!(".username(\"{user}\").password(password)"));
        let (scheme, tls) = if self.tls {
            ("rediss", ".certs(certificates)")
        } else {
            ("redis", "")
        };
        format!(
            "ClusterClientBuilder::new([\"{scheme}://{}:{PORT}\"]){login}{tls}.build()?",
            self.host
        )
    }
}

impl Shown for Connect {
    fn text(&self, width: usize) -> String {
        let mut text = name_of(&self.namespace, &self.name, self.state);
        text.push_str(&said(
            "seed",
            &format!("{}:{}", self.host, self.port),
            width,
        ));
        let users = if self.users.is_empty() {
            "none is bound: the cluster is open to whoever reaches it".to_owned()
        } else {
            self.users.join(", ")
        };
        text.push_str(&said("users", &users, width));
        match self.ca_command() {
            None => text.push_str(&said("tls", "no", width)),
            Some(command) => {
                text.push_str(&said(
                    "tls",
                    "yes, by the authority that this writes:",
                    width,
                ));
                // Never wrapped: it is to be copied.
                text.extend(["        ", &command, "\n"]);
            }
        }
        for Snippet { client, code } in &self.snippets {
            text.extend(["\n", &Tone::Head.paint(client), "\n  ", code, "\n"]);
        }
        text
    }
}

impl Desk {
    /// Tells how clients find a cluster.
    pub(super) async fn connect(&self, name: Option<String>) -> Result<Exit, Error> {
        let (key, visit) = self.find(name).await?;
        let world = visit.outline(&key).await.map_err(Error::Observe)?;
        self.show(&Connect::of(&world.ok_or(Error::NoCluster(key))?))?;
        Ok(Exit::Done)
    }
}
