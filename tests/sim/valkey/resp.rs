//! The bytes of commands and replies: protocol 2, and what of protocol 3 is used.
//! Never interprets a command.

use std::fmt;

/// A reply. Maps, verbatim strings and nulls occur on connections that speak protocol 3 only.
#[derive(Clone, PartialEq)]
pub(crate) enum Value {
    /// `+OK`
    Simple(String),
    /// `-ERR ...`: the whole text, its code first.
    Error(String),
    /// `:1`
    Integer(i64),
    /// `$2`
    Bulk(Vec<u8>),
    /// `$-1`
    Nil,
    /// `*2`
    Array(Vec<Value>),
    /// `_`
    Null,
    /// `%2`
    Map(Vec<(Value, Value)>),
    /// `=6` with `txt:`
    Verbatim(String),
}

impl Value {
    /// `+OK`
    pub(crate) fn ok() -> Self {
        Self::Simple("OK".to_owned())
    }

    /// An error by its whole text.
    pub(crate) fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    /// A bulk string.
    pub(crate) fn bulk(text: impl Into<Vec<u8>>) -> Self {
        Self::Bulk(text.into())
    }

    /// The text of a simple, bulk or verbatim string or of an error.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Simple(text) | Self::Error(text) | Self::Verbatim(text) => Some(text),
            Self::Bulk(bytes) => std::str::from_utf8(bytes).ok(),
            Self::Integer(_) | Self::Nil | Self::Array(_) | Self::Null | Self::Map(_) => None,
        }
    }

    /// Appends its bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Simple(text) => line(out, b'+', text),
            Self::Error(text) => line(out, b'-', text),
            Self::Integer(number) => line(out, b':', &number.to_string()),
            Self::Bulk(bytes) => {
                line(out, b'$', &bytes.len().to_string());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Null => out.extend_from_slice(b"_\r\n"),
            Self::Array(values) => {
                line(out, b'*', &values.len().to_string());
                for value in values {
                    value.encode(out);
                }
            }
            Self::Map(pairs) => {
                line(out, b'%', &pairs.len().to_string());
                for (key, value) in pairs {
                    key.encode(out);
                    value.encode(out);
                }
            }
            Self::Verbatim(text) => {
                line(out, b'=', &(text.len() + 4).to_string());
                out.extend_from_slice(b"txt:");
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out);
        out
    }
}

fn line(out: &mut Vec<u8>, mark: u8, text: &str) {
    out.push(mark);
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// In the manner of `valkey-cli`, so that a failed comparison can be read.
impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simple(text) => write!(f, "+{text}"),
            Self::Error(text) => write!(f, "-{text}"),
            Self::Integer(number) => write!(f, ":{number}"),
            Self::Bulk(bytes) => write!(f, "{:?}", String::from_utf8_lossy(bytes)),
            Self::Nil => f.write_str("(nil)"),
            Self::Null => f.write_str("(null)"),
            Self::Array(values) => f.debug_list().entries(values).finish(),
            Self::Map(pairs) => f
                .debug_map()
                .entries(pairs.iter().map(|(key, value)| (key, value)))
                .finish(),
            Self::Verbatim(text) => write!(f, "txt:{text:?}"),
        }
    }
}

/// Bytes that are no command. A real process answers with the error and closes the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Garbage {
    /// What it answers, code first.
    pub(crate) error: &'static str,
}

/// Cuts a stream of bytes into commands, whatever the pieces it comes in.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// How much of it belongs to commands that were handed out.
    read: usize,
}

impl Decoder {
    /// More bytes came.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        if self.read > 0 {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// The next command, if it is whole: never an empty one.
    pub(crate) fn command(&mut self) -> Result<Option<Vec<Vec<u8>>>, Garbage> {
        loop {
            let mut cursor = Cursor {
                bytes: &self.bytes,
                at: self.read,
            };
            let Some(args) = cursor.command()? else {
                return Ok(None);
            };
            self.read = cursor.at;
            if !args.is_empty() {
                return Ok(Some(args));
            }
        }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// One command, an empty line included; none if more bytes are needed.
    fn command(&mut self) -> Result<Option<Vec<Vec<u8>>>, Garbage> {
        let Some(first) = self.line() else {
            return Ok(None);
        };
        let Some(count) = first.strip_prefix(b"*") else {
            return Ok(Some(
                first
                    .split(u8::is_ascii_whitespace)
                    .filter(|word| !word.is_empty())
                    .map(<[u8]>::to_vec)
                    .collect(),
            ));
        };
        let count = number(count).ok_or(Garbage {
            error: "ERR Protocol error: invalid multibulk length",
        })?;
        let mut args = Vec::new();
        for _ in 0..count {
            let Some(arg) = self.bulk()? else {
                return Ok(None);
            };
            args.push(arg);
        }
        Ok(Some(args))
    }

    fn bulk(&mut self) -> Result<Option<Vec<u8>>, Garbage> {
        let Some(head) = self.line() else {
            return Ok(None);
        };
        let Some(length) = head.strip_prefix(b"$") else {
            return Err(Garbage {
                error: "ERR Protocol error: expected '$'",
            });
        };
        let length = number(length)
            .and_then(|length| usize::try_from(length).ok())
            .ok_or(Garbage {
                error: "ERR Protocol error: invalid bulk length",
            })?;
        let Some(bytes) = self.bytes.get(self.at..self.at + length) else {
            return Ok(None);
        };
        if self.bytes.len() < self.at + length + 2 {
            return Ok(None);
        }
        self.at += length + 2;
        Ok(Some(bytes.to_vec()))
    }

    /// Up to the line's end, which is passed.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = self.bytes.get(self.at..)?;
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.at += end + 1;
        let line = rest.get(..end)?;
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

fn number(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Decoder;
    use super::Garbage;
    use super::Value;

    #[test]
    fn commands_come_whole_from_any_pieces() {
        let stream = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING  x\r\n\r\n*1\r\n$4\r\nQUIT\r\n";
        for size in 1..stream.len() {
            let mut decoder = Decoder::default();
            let mut commands = Vec::new();
            for piece in stream.chunks(size) {
                decoder.push(piece);
                while let Some(command) = decoder.command().unwrap() {
                    commands.push(command);
                }
            }
            let expected: [&[&[u8]]; 3] = [&[b"GET", b"k"], &[b"PING", b"x"], &[b"QUIT"]];
            assert_eq!(commands, expected);
        }
    }

    #[test]
    fn garbage_is_named() {
        let mut decoder = Decoder::default();
        decoder.push(b"*1\r\n+x\r\n");
        assert_eq!(
            decoder.command(),
            Err(Garbage {
                error: "ERR Protocol error: expected '$'"
            })
        );
    }

    #[test]
    fn replies_have_the_bytes_of_their_protocol() {
        let two = Value::Array(vec![Value::Integer(1), Value::Nil, Value::bulk("ab")]);
        assert_eq!(two.bytes(), b"*3\r\n:1\r\n$-1\r\n$2\r\nab\r\n");
        let three = Value::Map(vec![(Value::ok(), Value::Verbatim("ab".to_owned()))]);
        assert_eq!(three.bytes(), b"%1\r\n+OK\r\n=6\r\ntxt:ab\r\n");
    }
}
