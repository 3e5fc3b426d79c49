//! Turns the environment into settings, once, at the start.
//! Never read again, and no other module names an environment variable.

use std::net::SocketAddr;

use crate::api::cluster::ZoneSpread;

/// What a platform team sets for the whole operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `DEFAULT_ZONE_SPREAD`: what a cluster gets that names no `zoneSpread`.
    pub default_zone_spread: ZoneSpread,
    /// `VALKEY_FIXED_USER`: Valkey pods run as user and group 999; `false` leaves both to the
    /// platform, as OpenShift wants it.
    pub fixed_user: bool,
    /// `SERVE_ADDRESS`: where `/healthz`, `/readyz` and `/metrics` are served, such as `0.0.0.0:8080`;
    /// nowhere where it is unset.
    pub serve_address: Option<SocketAddr>,
    /// `RUST_LOG`: the log filter, by default `info`.
    pub log: String,
}

/// A variable with a value that is not one of its own.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} is {value:?}, must be one of: {allowed}")]
pub struct Error {
    variable: &'static str,
    value: String,
    allowed: &'static str,
}

impl Settings {
    /// Reads settings through `lookup`, which gives a variable's value. An empty value counts as
    /// unset.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let default_zone_spread = match lookup("DEFAULT_ZONE_SPREAD").as_deref() {
            None | Some("bestEffort") => ZoneSpread::BestEffort,
            Some("required") => ZoneSpread::Required,
            Some(value) => {
                return Err(refuse("DEFAULT_ZONE_SPREAD", value, "bestEffort, required"));
            }
        };
        let fixed_user = match lookup("VALKEY_FIXED_USER").as_deref() {
            None | Some("true") => true,
            Some("false") => false,
            Some(value) => return Err(refuse("VALKEY_FIXED_USER", value, "true, false")),
        };
        let serve_address = match lookup("SERVE_ADDRESS") {
            None => None,
            Some(value) => match value.parse() {
                Ok(address) => Some(address),
                Err(_) => {
                    return Err(refuse(
                        "SERVE_ADDRESS",
                        &value,
                        "an IP address and a port, such as 0.0.0.0:8080 or [::]:8080",
                    ));
                }
            },
        };
        let log = lookup("RUST_LOG").unwrap_or_else(|| "info".to_owned());
        Ok(Self {
            default_zone_spread,
            fixed_user,
            serve_address,
            log,
        })
    }

    /// Reads settings from the process's environment.
    pub fn from_environment() -> Result<Self, Error> {
        Self::read(|name| std::env::var(name).ok())
    }
}

fn refuse(variable: &'static str, value: &str, allowed: &'static str) -> Error {
    Error {
        variable,
        value: value.to_owned(),
        allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::read(lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn nothing_set_gives_the_shipped_defaults() {
        let shipped = Settings {
            default_zone_spread: ZoneSpread::BestEffort,
            fixed_user: true,
            serve_address: None,
            log: "info".to_owned(),
        };
        assert_eq!(read(&[]), Ok(shipped.clone()));
        assert_eq!(
            read(&[("DEFAULT_ZONE_SPREAD", ""), ("RUST_LOG", "")]),
            Ok(shipped)
        );
    }

    #[test]
    fn a_wrong_value_is_refused_by_name() {
        assert_eq!(
            read(&[("DEFAULT_ZONE_SPREAD", "Required")]),
            Err("DEFAULT_ZONE_SPREAD is \"Required\", must be one of: bestEffort, required".into())
        );
        assert!(read(&[("VALKEY_FIXED_USER", "yes")]).is_err());
        assert!(read(&[("SERVE_ADDRESS", ":8080")]).is_err());
        let set = [
            ("DEFAULT_ZONE_SPREAD", "required"),
            ("VALKEY_FIXED_USER", "false"),
            ("SERVE_ADDRESS", "[::]:8080"),
        ];
        let settings = read(&set).unwrap();
        assert_eq!(settings.default_zone_spread, ZoneSpread::Required);
        assert!(!settings.fixed_user);
        assert_eq!(settings.serve_address.unwrap().port(), 8080);
    }
}
