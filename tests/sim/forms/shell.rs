//! How Valkey reads words from a line: the rules of its `sdssplitargs` (sds.c), on bytes.
//! Never how the operator writes them.

/// The words of a line; nothing where a quote stays open or a closing one is followed by anything but
/// a space.
pub(super) fn words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = line;
    let mut words = Vec::new();
    loop {
        while let [first, tail @ ..] = rest
            && is_space(*first)
        {
            rest = tail;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let (word, tail) = word(rest)?;
        words.push(word);
        rest = tail;
    }
}

/// `isspace` of the C locale.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// The first word of bytes that begin with one, and what follows.
fn word(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut word = Vec::new();
    loop {
        match rest {
            [] | [b' ' | b'\n' | b'\r' | b'\t' | 0, ..] => return Some((word, rest)),
            [b'"', tail @ ..] => {
                let tail = double_quoted(tail, &mut word)?;
                return closed(tail).then_some((word, tail));
            }
            [b'\'', tail @ ..] => {
                let tail = single_quoted(tail, &mut word)?;
                return closed(tail).then_some((word, tail));
            }
            [other, tail @ ..] => {
                word.push(*other);
                rest = tail;
            }
        }
    }
}

/// A closing quote ends its word.
fn closed(tail: &[u8]) -> bool {
    tail.first().is_none_or(|byte| is_space(*byte))
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |byte: u8| char::from(byte).to_digit(16);
    loop {
        match rest {
            [b'\\', b'x', high, low, tail @ ..] if hex(*high).is_some() && hex(*low).is_some() => {
                let value = hex(*high)? * 16 + hex(*low)?;
                word.push(u8::try_from(value).ok()?);
                rest = tail;
            }
            [b'\\', escaped, tail @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = tail;
            }
            [b'"', tail @ ..] => return Some(tail),
            [other, tail @ ..] => {
                word.push(*other);
                rest = tail;
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', tail @ ..] => {
                word.push(b'\'');
                rest = tail;
            }
            [b'\'', tail @ ..] => return Some(tail),
            [other, tail @ ..] => {
                word.push(*other);
                rest = tail;
            }
            [] => return None,
        }
    }
}

/// Bytes for a story.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[test]
fn words_are_read_as_valkey_reads_them() {
    let read = |line: &str| words(line.as_bytes()).map(|words| words.concat().len());
    assert_eq!(
        words(b"  a \"b c\"\t'd e' "),
        Some(vec![b"a".to_vec(), b"b c".to_vec(), b"d e".to_vec()])
    );
    assert_eq!(
        words(br#""\x41\n\"\\" x"#),
        Some(vec![b"A\n\"\\".to_vec(), b"x".to_vec()])
    );
    assert_eq!(read(r#"a "b"#), None);
    assert_eq!(read(r#""a"b"#), None);
    assert_eq!(read(r#"a\b"#), Some(3));
    assert_eq!(words(b"a \"\""), Some(vec![b"a".to_vec(), Vec::new()]));
}
