//! `name[:key=value,...]`: how a layer is asked for.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bickford::layer::{OperationKind, OperationSet, nearest};

use crate::LayerError;

/// A layer as it is asked for: `name[:key=value,...]`. A comma in a value is written `\,`, a
/// backslash `\\`. A key without a value means `key=true`.
///
/// ```
/// let spec: bickford_layers::LayerSpec = "fault:op=read,errno=EIO,after=10".parse()?;
/// assert_eq!(spec.name(), "fault");
/// # Ok::<(), bickford_layers::LayerError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSpec {
    text: String,
    name: String,
    options: Vec<(String, String)>,
}

impl LayerSpec {
    /// The layer's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The options in the order in which they were given.
    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        self.options
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
    }
}

impl fmt::Display for LayerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Splits at commas that no backslash stands before.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == ',' {
            parts.push(String::new());
            continue;
        }
        let Some(part) = parts.last_mut() else {
            continue;
        };
        if character == '\\' {
            match characters.next() {
                Some(escaped @ (',' | '\\')) => part.push(escaped),
                Some(other) => part.extend(['\\', other]),
                None => part.push('\\'),
            }
        } else {
            part.push(character);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

impl FromStr for LayerSpec {
    type Err = LayerError;

    fn from_str(text: &str) -> Result<Self, LayerError> {
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        if name.is_empty() {
            return Err(LayerError::new(
                text,
                "a layer is asked for as NAME[:KEY=VALUE,...]",
            ));
        }
        let options = split(rest).into_iter().map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((&part, "true"));
            (key.to_owned(), value.to_owned())
        });
        Ok(Self {
            text: text.to_owned(),
            name: name.to_owned(),
            options: options.collect(),
        })
    }
}

/// The options of one layer while it is made: each is taken once, and what nobody took is an
/// error.
#[derive(Debug)]
pub struct Options<'s> {
    spec: &'s LayerSpec,
    left: Vec<(&'s str, &'s str)>,
    known: Vec<&'static str>,
}

impl<'s> Options<'s> {
    pub(crate) fn new(spec: &'s LayerSpec) -> Self {
        Self {
            spec,
            left: spec.options().collect(),
            known: Vec::new(),
        }
    }

    /// An error about this layer.
    #[must_use]
    pub fn error(&self, message: impl fmt::Display) -> LayerError {
        LayerError::new(&self.spec.name, message)
    }

    /// Takes an option as text.
    ///
    /// # Errors
    /// When it is given twice.
    pub fn text(&mut self, key: &'static str) -> Result<Option<&'s str>, LayerError> {
        self.known.push(key);
        let mut values = self.left.iter().filter(|(other, _)| *other == key);
        let value = values.next().map(|(_, value)| *value);
        if values.next().is_some() {
            return Err(self.error(format_args!("{key} is given twice")));
        }
        self.left.retain(|(other, _)| *other != key);
        Ok(value)
    }

    /// Takes an option and reads it with `read`, which says what it should have been.
    ///
    /// # Errors
    /// When it is given twice or `read` does not take it.
    pub fn read<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, LayerError> {
        let Some(value) = self.text(key)? else {
            return Ok(None);
        };
        let read = read(value);
        read.map(Some)
            .map_err(|expected| self.error(format_args!("{key}={value}: {expected}")))
    }

    /// Takes `true` or `false`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<bool>, LayerError> {
        self.read(key, parse_flag)
    }

    /// Takes one of two words; the first where none is given.
    pub(crate) fn word(
        &mut self,
        key: &'static str,
        words: [&'static str; 2],
    ) -> Result<&'static str, LayerError> {
        let word = self.read(key, |value| {
            let word = words.into_iter().find(|word| *word == value);
            word.ok_or_else(|| format!("{} is meant", words.join(" or ")))
        })?;
        let [first, _] = words;
        Ok(word.unwrap_or(first))
    }

    /// Takes a whole number.
    ///
    /// # Errors
    /// When it is none.
    pub fn number(&mut self, key: &'static str) -> Result<Option<u64>, LayerError> {
        self.read(key, |value| {
            value
                .parse()
                .map_err(|_| "a whole number is meant".to_owned())
        })
    }

    /// Takes a size in bytes, with K, M or G for powers of 1024.
    ///
    /// # Errors
    /// When it is none.
    pub fn size(&mut self, key: &'static str) -> Result<Option<u64>, LayerError> {
        self.read(key, parse_size)
    }

    /// Takes a set of operations, separated by `|`.
    ///
    /// # Errors
    /// When a name is no operation's.
    pub fn operations(&mut self, key: &'static str) -> Result<Option<OperationSet>, LayerError> {
        self.read(key, parse_operations)
    }

    /// Takes all options that are left, each an operation or a group of operations.
    ///
    /// # Errors
    /// When one is given twice or is neither.
    pub(crate) fn by_operation(
        &mut self,
    ) -> Result<Vec<(OperationSet, &'s str, &'s str)>, LayerError> {
        let (later, taken): (Vec<_>, Vec<_>) =
            self.left.iter().partition(|(key, _)| *key == "switches");
        self.left = later;
        let mut seen = HashSet::new();
        let read = taken.into_iter().map(|(key, value)| {
            if !seen.insert(key) {
                return Err(self.error(format_args!("{key} is given twice")));
            }
            let set = parse_group(key).map_err(|error| self.error(error))?;
            Ok((set, key, value))
        });
        read.collect()
    }

    /// Ends the taking.
    ///
    /// # Errors
    /// When an option was given that nobody took.
    pub fn finish(self) -> Result<(), LayerError> {
        let Some((key, _)) = self.left.first() else {
            return Ok(());
        };
        let hint = match nearest(key, self.known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None if self.known.is_empty() => "it has no options".to_owned(),
            None => format!("it has {}", self.known.join(", ")),
        };
        Err(self.error(format_args!("unknown option {key:?}; {hint}")))
    }
}

/// Names of sets of operations.
const GROUPS: [(&str, OperationSet); 4] = [
    ("all", OperationSet::ALL),
    ("data", OperationSet::DATA),
    ("metadata", OperationSet::ALL.without(OperationSet::DATA)),
    ("changes", OperationSet::CHANGES),
];

fn parse_group(name: &str) -> Result<OperationSet, String> {
    if let Some((_, set)) = GROUPS.iter().find(|(group, _)| *group == name) {
        return Ok(*set);
    }
    let kind = name.parse::<OperationKind>();
    kind.map(|kind| OperationSet::of(&[kind])).map_err(|error| {
        let groups = GROUPS.map(|(name, _)| name);
        match nearest(name, groups) {
            Some(near) => format!("unknown operation {name:?}; did you mean {near:?}?"),
            None => error.to_string(),
        }
    })
}

/// Operations separated by `|`, and the groups `all`, `data`, `metadata`, `changes`.
pub(crate) fn parse_operations(text: &str) -> Result<OperationSet, String> {
    text.split('|')
        .map(parse_group)
        .try_fold(OperationSet::NONE, |set, more| Ok(set.with(more?)))
}

/// `true` or `false`.
pub(crate) fn parse_flag(text: &str) -> Result<bool, String> {
    match text {
        "true" | "yes" | "on" => Ok(true),
        "false" | "no" | "off" => Ok(false),
        _ => Err("true or false is meant".to_owned()),
    }
}

/// A size in bytes, with K, M or G of 1024; for flags of a command line as well.
///
/// # Errors
/// What is meant instead.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K' | b'k') => (text.get(..text.len() - 1), 10),
        Some(b'M' | b'm') => (text.get(..text.len() - 1), 20),
        Some(b'G' | b'g') => (text.get(..text.len() - 1), 30),
        _ => (Some(text), 0),
    };
    let bytes = digits.and_then(|digits| digits.parse::<u64>().ok());
    bytes
        .and_then(|bytes| bytes.checked_mul(1 << shift))
        .ok_or_else(|| "a size in bytes is meant, such as 64K, 10M or 1G".to_owned())
}

/// A duration with its unit: `ns`, `us`, `ms` or `s`; for flags of a command line as well.
///
/// # Errors
/// What is meant instead.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let units = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let number = units
        .iter()
        .find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let seconds = number.and_then(|(number, scale)| Some(number.parse::<f64>().ok()? * scale));
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "a duration with its unit is meant, such as 250us, 5ms or 1.5s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_is_a_name_and_options() {
        let spec: LayerSpec = r"log:file=/a\,b\\c,paths".parse().unwrap();
        let options: Vec<_> = spec.options().collect();
        assert_eq!(options, [("file", r"/a,b\c"), ("paths", "true")]);
        assert_eq!(spec.to_string(), r"log:file=/a\,b\\c,paths");
        assert_eq!("stats".parse::<LayerSpec>().unwrap().name(), "stats");
        assert!(":x=1".parse::<LayerSpec>().is_err());
    }

    #[test]
    fn options_are_taken_once_and_no_other_is_accepted() {
        let spec: LayerSpec = "x:aftr=1,size=2K".parse().unwrap();
        let mut options = Options::new(&spec);
        assert_eq!(options.size("size").unwrap(), Some(2048));
        assert_eq!(options.number("after").unwrap(), None);
        let error = options.finish().unwrap_err().to_string();
        assert_eq!(
            error,
            "layer x: unknown option \"aftr\"; did you mean \"after\"?"
        );
        let spec: LayerSpec = "x:a=1,a=2".parse().unwrap();
        assert!(Options::new(&spec).number("a").is_err());
    }

    #[test]
    fn values_say_what_was_meant() {
        assert_eq!(parse_size("3M"), Ok(3 << 20));
        assert!(parse_size("").is_err() && parse_size("99999999999G").is_err());
        assert_eq!(parse_duration("1.5ms"), Ok(Duration::from_micros(1500)));
        for wrong in ["5", "-1s", "ms", "NaNs", "infs"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
        let set = parse_operations("read|data|getattr").unwrap();
        assert_eq!(set.iter().count(), 3);
        assert!(parse_operations("raed").unwrap_err().contains("\"read\""));
        assert!(
            parse_operations("metdata")
                .unwrap_err()
                .contains("\"metadata\"")
        );
    }
}
