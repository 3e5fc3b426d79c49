//! What a server answers: the protocol's bytes as a value, and a value as the lines of a talk.
//! Never names anybody: ids, addresses and times are the business of `names`.

/// A value of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(String),
    Nil,
    Array(Vec<Self>),
}

/// What came of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Reply(Reply),
    /// Nobody listens there.
    Refused,
    /// The connection ended before an answer came.
    Closed,
    /// No answer came for as long as the talk was ready to wait.
    Silent,
}

impl Reply {
    /// The first value of these bytes and what it took of them; none if it is not whole yet.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let end = bytes.windows(2).position(|pair| pair == b"\r\n")?;
        let line = String::from_utf8_lossy(&bytes[1..end]).into_owned();
        let mut taken = end + 2;
        let number = || line.parse::<i64>().expect("a number after the type");
        let value = match bytes[0] {
            b'+' => Self::Simple(line),
            b'-' => Self::Error(line),
            b':' => Self::Integer(number()),
            b'$' | b'*' if number() < 0 => Self::Nil,
            b'$' => {
                let length = usize::try_from(number()).expect("a length");
                let text = bytes.get(taken..taken + length)?;
                let text = String::from_utf8_lossy(text).into_owned();
                taken += length + 2;
                if bytes.len() < taken {
                    return None;
                }
                Self::Bulk(text)
            }
            b'*' => {
                let mut items = Vec::new();
                for _ in 0..number() {
                    let (item, length) = Self::parse(&bytes[taken..])?;
                    items.push(item);
                    taken += length;
                }
                Self::Array(items)
            }
            other => panic!("a reply of type {:?}", char::from(other)),
        };
        Some((value, taken))
    }

    /// On one line, arrays in brackets.
    pub(crate) fn inline(&self) -> String {
        match self {
            Self::Error(text) => format!("(error) {text}"),
            Self::Simple(text) | Self::Bulk(text) if text.is_empty() => "\"\"".to_owned(),
            Self::Simple(text) | Self::Bulk(text) => text.replace('\r', "\\r").replace('\n', "\\n"),
            Self::Integer(number) => format!("(integer) {number}"),
            Self::Nil => "(nil)".to_owned(),
            Self::Array(items) => {
                let items: Vec<String> = items.iter().map(Self::inside).collect();
                format!("[{}]", items.join(" "))
            }
        }
    }

    /// Inside an array a number needs no mark: no string is mistaken for one.
    fn inside(&self) -> String {
        match self {
            Self::Integer(number) => number.to_string(),
            Self::Simple(_) | Self::Error(_) | Self::Bulk(_) | Self::Nil | Self::Array(_) => {
                self.inline()
            }
        }
    }

    /// As many lines as a text has, or an array has items.
    pub(crate) fn lines(&self) -> Vec<String> {
        match self {
            Self::Bulk(text) if !text.is_empty() => text.lines().map(str::to_owned).collect(),
            Self::Array(items) if !items.is_empty() => items.iter().map(Self::inline).collect(),
            Self::Simple(_)
            | Self::Error(_)
            | Self::Integer(_)
            | Self::Bulk(_)
            | Self::Nil
            | Self::Array(_) => vec![self.inline()],
        }
    }
}

/// A command as a client sends it.
pub(crate) fn request(words: &[String]) -> Vec<u8> {
    use std::fmt::Write as _;
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        write!(text, "${}\r\n{word}\r\n", word.len()).expect("a String takes all");
    }
    text.into_bytes()
}
