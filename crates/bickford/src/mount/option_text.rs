//! The text of mount options: splitting, escaping, and what is wrong with a text.

use std::borrow::Cow;
use std::path::Path;

use thiserror::Error;

use super::options::CONTEXTS;

/// Longest text accepted for one option value, in bytes: the kernel takes one page for all of them.
const MAX_VALUE_LEN: usize = 3072;

/// Longest text that fsconfig(2) takes for a value, in bytes.
pub(super) const FSNAME_MAX: usize = 255;

/// The `fsname` of a file system whose source is a directory: its path, of a path over 255 bytes the
/// end, after `...`. A mount can be listed by it everywhere.
pub fn fsname_of(source: &Path) -> String {
    const CUT: &str = "...";
    let whole = source.to_string_lossy();
    if whole.len() <= FSNAME_MAX {
        return whole.into_owned();
    }
    let mut from = whole.len() - (FSNAME_MAX - CUT.len());
    while !whole.is_char_boundary(from) {
        from += 1;
    }
    format!("{CUT}{}", whole.get(from..).unwrap_or_default())
}

/// Why an option text was refused. Every message names the option.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OptionError {
    /// The option is not one of mount.fuse3(8) or mount(8).
    #[error("mount option '{option}' is not known{}", suggestion(.nearest))]
    Unknown {
        /// The name as given, without its value.
        option: String,
        /// The known name closest to it.
        nearest: Option<String>,
        /// Every name that would have been accepted.
        known: Vec<String>,
    },
    /// FUSE has not what the option asks for.
    #[error("mount option '{option}': {reason}")]
    Refused {
        /// The option's name.
        option: String,
        /// What is missing, and what to do.
        reason: &'static str,
    },
    /// The option needs a value and has none.
    #[error("mount option '{option}' needs a value: write {option}=VALUE")]
    MissingValue {
        /// The option's name.
        option: String,
    },
    /// The option takes no value and has one.
    #[error("mount option '{option}' takes no value, but has '{value}': write only {option}")]
    UnexpectedValue {
        /// The option's name.
        option: String,
        /// The value that was given.
        value: String,
    },
    /// The value is not usable.
    #[error("mount option '{option}={value}': {reason}")]
    BadValue {
        /// The option's name.
        option: String,
        /// The value that was given.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two options exclude each other.
    #[error("mount options '{first}' and '{second}' exclude each other: give one of them")]
    Conflict {
        /// The option given first.
        first: &'static str,
        /// The option that contradicts it.
        second: &'static str,
    },
}

fn suggestion(nearest: &Option<String>) -> String {
    match nearest {
        Some(name) => format!("; did you mean '{name}'?"),
        None => "; mount.fuse3(8) and mount(8) tell which are".to_owned(),
    }
}

/// Escapes commas and backslashes, so that the value survives [`split_options`].
pub fn escape_option(value: &str) -> Cow<'_, str> {
    if !value.contains([',', '\\']) {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + 8);
    for c in value.chars() {
        if matches!(c, ',' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    Cow::Owned(escaped)
}

/// Splits an option text at its commas, empty options left out.
///
/// A backslash takes the next character as it is. The value of a `context` option may stand in double
/// quotes, where commas belong to it, as mount(8) has it.
pub fn split_options(text: &str) -> Vec<String> {
    let mut options = Vec::new();
    let mut current = String::new();
    let mut quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => current.extend(chars.next()),
            '"' if quoted => quoted = false,
            '"' if current.ends_with("context=") => quoted = true,
            ',' if !quoted => options.push(std::mem::take(&mut current)),
            _ => current.push(c),
        }
    }
    options.push(current);
    options.retain(|option| !option.is_empty());
    options
}

/// The error for an option that is not among `known`.
pub fn unknown(option: &str, known: &[String]) -> OptionError {
    let nearest = known
        .iter()
        .map(|name| (strsim::osa_distance(option, name), name))
        .min()
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4)
        .map(|(_, name)| name.clone());
    OptionError::Unknown {
        option: option.to_owned(),
        nearest,
        known: known.to_vec(),
    }
}

pub(super) fn no_value(name: &str, value: Option<&str>) -> Result<(), OptionError> {
    match value {
        None => Ok(()),
        Some(value) => Err(OptionError::UnexpectedValue {
            option: name.to_owned(),
            value: value.to_owned(),
        }),
    }
}

pub(super) fn checked_value<'v>(
    name: &str,
    value: Option<&'v str>,
) -> Result<&'v str, OptionError> {
    let value =
        value
            .filter(|value| !value.is_empty())
            .ok_or_else(|| OptionError::MissingValue {
                option: name.to_owned(),
            })?;
    let reason = if value.len() > MAX_VALUE_LEN {
        format!("longer than {MAX_VALUE_LEN} bytes")
    } else if value.contains('\0') {
        "a NUL byte cannot be passed to the kernel".to_owned()
    } else if CONTEXTS.contains(&name) && value.contains('"') {
        "a double quote cannot be part of a context".to_owned()
    } else {
        return Ok(value);
    };
    let value = value.chars().take(64).collect();
    Err(OptionError::BadValue {
        option: name.to_owned(),
        value,
        reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_path_is_its_name() {
        assert_eq!(fsname_of(Path::new("/a/b")), "/a/b");
        let longest = "/".to_owned() + &"x".repeat(254);
        assert_eq!(fsname_of(Path::new(&longest)), longest);
        for part in ["x", "ä", "語"] {
            let path = format!("/begin/{}/end", part.repeat(300));
            let name = fsname_of(Path::new(&path));
            assert!((253..=255).contains(&name.len()), "{}", name.len());
            assert!(name.starts_with("...") && name.ends_with("/end"), "{name}");
        }
    }
}
