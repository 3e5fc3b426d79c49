//! Label and field selectors, as they come in a query.
//! Never an expression that the API does not have.

use serde_json::Value;

use super::json;

/// A label selector: all its terms must hold. No terms select everything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(Vec<Term>);

#[derive(Clone, Debug)]
enum Term {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Missing(String),
}

impl Labels {
    /// Reads `k=v`, `k==v`, `k!=v`, `k in (a,b)`, `k notin (a,b)`, `k` and `!k`, joined by commas;
    /// nothing where the text is none of these.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let terms = split(text);
        terms
            .into_iter()
            .map(str::trim)
            .filter(|term| !term.is_empty())
            .map(term)
            .collect::<Option<Vec<Term>>>()
            .map(Self)
    }

    /// Whether an object's labels are selected.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = object.pointer("/metadata/labels");
        let label = |key: &str| labels.and_then(|labels| labels.get(key)?.as_str());
        self.0.iter().all(|term| match term {
            Term::In(key, values) => {
                label(key).is_some_and(|held| values.iter().any(|value| value == held))
            }
            // An object without the key is selected too.
            Term::NotIn(key, values) => {
                label(key).is_none_or(|held| values.iter().all(|value| value != held))
            }
            Term::Exists(key) => label(key).is_some(),
            Term::Missing(key) => label(key).is_none(),
        })
    }
}

/// Commas outside parentheses divide terms.
fn split(text: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    text.split(|letter| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        letter == ',' && depth == 0
    })
    .collect()
}

fn term(text: &str) -> Option<Term> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Term::Missing(key.trim().to_owned()));
    }
    let owned = |(key, value): (&str, &str)| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = text.split_once("!=").map(owned) {
        return Some(Term::NotIn(key, value));
    }
    let equal = text.split_once("==").or_else(|| text.split_once('='));
    if let Some((key, value)) = equal.map(owned) {
        return Some(Term::In(key, value));
    }
    let mut words = text.splitn(3, char::is_whitespace);
    let (key, operator) = (words.next()?.to_owned(), words.next());
    let Some(operator) = operator else {
        return Some(Term::Exists(key));
    };
    let values = words.next()?.trim().strip_prefix('(')?.strip_suffix(')')?;
    let values = values.split(',').map(|value| value.trim().to_owned());
    match operator {
        "in" => Some(Term::In(key, values.collect())),
        "notin" => Some(Term::NotIn(key, values.collect())),
        _ => None,
    }
}

/// A field selector: paths that must have, or must not have, a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, bool, String)>);

impl Fields {
    /// Reads `a.b=v`, `a.b==v` and `a.b!=v`, joined by commas. Unlike the real one, it takes every path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let terms = text.split(',').filter(|term| !term.is_empty());
        let terms = terms.map(|term| {
            let (path, equal, value) = if let Some((path, value)) = term.split_once("!=") {
                (path, false, value)
            } else {
                let (path, value) = term.split_once("==").or_else(|| term.split_once('='))?;
                (path, true, value)
            };
            let pointer = format!("/{}", path.trim().replace('.', "/"));
            Some((pointer, equal, value.trim().to_owned()))
        });
        terms.collect::<Option<Vec<_>>>().map(Self)
    }

    /// Whether an object is selected.
    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.0
            .iter()
            .all(|(path, equal, value)| (json::text_or_empty(object, path) == value) == *equal)
    }
}
