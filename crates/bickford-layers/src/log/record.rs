//! One line of the log.

use std::fmt::Write as _;
use std::time::Duration;

use bickford::layer::{About, Done, Outcome};
use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::errno;
use crate::names::Names;

/// What is written of one operation.
#[derive(Debug)]
pub(super) struct Record<'a> {
    time: Timestamp,
    done: &'a Done,
    about: &'a About<'a>,
    outcome: &'a Outcome,
    path: Option<String>,
    new_path: Option<String>,
    took: Duration,
}

/// Whether text that is shown may seem to be another with this character: terminals obey it, readers end a line at it,
/// or what is around it is shown in another order.
#[must_use]
pub fn misleads(character: char) -> bool {
    let separates = matches!(character, '\u{2028}' | '\u{2029}');
    let turns = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || separates || turns
}

/// A name that cannot be mistaken for anything else in a line.
pub(super) fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if misleads(character) || character == '\\' {
                let mut buffer = [0; 4];
                for byte in character.encode_utf8(&mut buffer).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

impl<'a> Record<'a> {
    pub(super) fn new(
        done: &'a Done,
        about: &'a About<'a>,
        outcome: &'a Outcome,
        names: Option<&Names>,
    ) -> Self {
        let path = names.and_then(|names| names.path_about(about));
        let new_path = about
            .new_name
            .and_then(|(parent, name)| names?.path_of(parent, name.to_bytes()));
        Self {
            time: Timestamp::now(),
            done,
            about,
            outcome,
            path: path.map(|path| escape(&path)),
            new_path: new_path.map(|path| escape(&path)),
            took: done.took(),
        }
    }

    /// Numbers that apply, by key.
    fn numbers(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let outcome = self.outcome;
        let succeeded = outcome.errno.is_none();
        let entry = outcome.entry.map(|entry| entry.node.0);
        let opened = outcome.opened.map(|opened| opened.handle.0);
        [
            ("handle", self.about.handle.map(|handle| handle.0)),
            ("offset", self.about.offset),
            ("length", self.about.length),
            ("flags", self.about.flags.map(u64::from)),
            ("entry", entry),
            ("opened", opened),
            ("bytes", succeeded.then_some(outcome.bytes)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key, value?)))
        .filter(|(key, value)| *key != "bytes" || *value > 0)
    }

    /// Names where paths are not known, and of extended attributes.
    fn names(&self) -> impl Iterator<Item = (&'static str, String)> {
        let unknown = self.path.is_none();
        let name = self.about.name.filter(|_| unknown);
        let new_name = self.about.new_name.filter(|_| self.new_path.is_none());
        [
            ("name", name),
            ("new_name", new_name.map(|(_, name)| name)),
            ("xattr", self.about.xattr),
        ]
        .into_iter()
        .filter_map(|(key, name)| Some((key, escape(name?.to_bytes()))))
    }

    fn microseconds(&self) -> u64 {
        u64::try_from(self.took.as_micros()).unwrap_or(u64::MAX)
    }

    pub(super) fn text(&self) -> String {
        let Self { done, about, .. } = self;
        let known = |id: u32| match done.has_ids() {
            true => id.to_string(),
            false => "?".to_owned(),
        };
        let mut line = format!(
            "{} unique={} uid={} gid={} pid={} {}",
            self.time,
            done.unique(),
            known(done.uid()),
            known(done.gid()),
            done.pid(),
            about.kind
        );
        match &self.path {
            Some(path) => line.extend([" ", path]),
            None => {
                let _ = write!(line, " node={}", about.node);
            }
        }
        if let Some(path) = &self.new_path {
            line.extend([" -> ", path]);
        }
        for (key, name) in self.names() {
            let _ = write!(line, " {key}={name}");
        }
        for (key, number) in self.numbers() {
            let _ = write!(line, " {key}={number}");
        }
        let result = self.outcome.errno.map_or("ok".to_owned(), errno::name);
        let _ = writeln!(line, " = {result} in {} us", self.microseconds());
        line
    }

    pub(super) fn json(&self) -> String {
        let mut object = Map::new();
        let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
        put("time", self.time.to_string().into());
        put("unique", self.done.unique().0.into());
        let known = |id: u32| self.done.has_ids().then_some(id);
        put("uid", known(self.done.uid()).into());
        put("gid", known(self.done.gid()).into());
        put("pid", self.done.pid().into());
        put("op", self.about.kind.name().into());
        put("node", self.about.node.0.into());
        if let Some(path) = &self.path {
            put("path", path.as_str().into());
        }
        if let Some(path) = &self.new_path {
            put("new_path", path.as_str().into());
        }
        for (key, name) in self.names() {
            put(key, name.into());
        }
        for (key, number) in self.numbers() {
            put(key, number.into());
        }
        if let Some(errno) = self.outcome.errno {
            put("error", errno::name(errno).into());
        }
        put("us", self.microseconds().into());
        Value::Object(object).to_string() + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_forge_lines() {
        assert_eq!(escape(b"plain name.txt"), "plain name.txt");
        assert_eq!(escape(b"a\nb\\x0a\x1b[0m"), "a\\x0ab\\x5cx0a\\x1b[0m");
        assert_eq!(escape("gr\u{fc}n\u{85}".as_bytes()), "gr\u{fc}n\\xc2\\x85");
        assert_eq!(escape(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(
            escape("a\u{2028}b\u{2029}c".as_bytes()),
            "a\\xe2\\x80\\xa8b\\xe2\\x80\\xa9c"
        );
        for turning in "\u{61c}\u{200e}\u{200f}\u{202a}\u{202e}\u{2066}\u{2069}".chars() {
            let escaped = escape(turning.to_string().as_bytes());
            assert!(escaped.is_ascii(), "{escaped:?}");
        }
    }
}
