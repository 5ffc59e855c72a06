//! Switches: which pre-calls, calls and post-calls are made, from a configuration file.

use std::fmt;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{Needs, OperationKind, OperationSet, nearest};

/// Which pre-calls, calls and post-calls are made.
///
/// As a TOML file, where everything is on that is not mentioned:
///
/// ```toml
/// # READ and WRITE without their contents; kernel pass-through stays on.
/// metadata-only = true
///
/// # For every operation that has no table of its own.
/// [default]
/// pre = false
///
/// # `call = false` leaves out the file system below: unless the pre-call answers, the operation
/// # is answered as by a file system that does not implement it. The release of what was opened below
/// # is always made.
/// [operations.lookup]
/// pre = true
/// call = true
/// post = false
/// ```
///
/// ```
/// use bickford::layer::{OperationKind, Switches};
///
/// let switches: Switches = "[operations.lookup]\npost = false\n".parse()?;
/// assert!(!switches.post.contains(OperationKind::Lookup));
/// assert!(switches.pre.contains(OperationKind::Lookup));
/// # Ok::<(), bickford::layer::SwitchesError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// Operations whose pre-calls are made.
    pub pre: OperationSet,
    /// Operations that the file system below is asked for.
    pub call: OperationSet,
    /// Operations whose post-calls are made.
    pub post: OperationSet,
    /// Whether the contents of READ and WRITE are kept from the layer.
    pub metadata_only: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            pre: OperationSet::ALL,
            call: OperationSet::ALL,
            post: OperationSet::ALL,
            metadata_only: false,
        }
    }
}

impl Switches {
    pub(super) fn restrict(&self, needs: Needs) -> Needs {
        if self.metadata_only {
            return Needs {
                data: false,
                contents: false,
                ..needs
            };
        }
        needs
    }

    fn set(&mut self, kind: OperationKind, one: One) {
        let only = OperationSet::of(&[kind]);
        for (set, on) in [
            (&mut self.pre, one.pre),
            (&mut self.call, one.call),
            (&mut self.post, one.post),
        ] {
            *set = if on {
                set.with(only)
            } else {
                set.without(only)
            };
        }
    }
}

/// What is wrong with a file of switches, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchesError {
    /// Line, from 1 on.
    pub line: usize,
    /// Column in characters, from 1 on.
    pub column: usize,
    message: String,
}

impl fmt::Display for SwitchesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.message
        )
    }
}

impl std::error::Error for SwitchesError {}

#[derive(Clone, Copy)]
struct One {
    pre: bool,
    call: bool,
    post: bool,
}

struct Source<'t>(&'t str);

impl Source<'_> {
    fn error(&self, at: &Range<usize>, message: impl Into<String>) -> SwitchesError {
        let before = self.0.get(..at.start).unwrap_or(self.0);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        SwitchesError {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or_default().chars().count() + 1,
            message: message.into(),
        }
    }

    fn unknown(&self, key: &Spanned<impl AsRef<str>>, known: &[&str]) -> SwitchesError {
        let name = key.get_ref().as_ref();
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("known are {}", known.join(", ")),
        };
        self.error(&key.span(), format!("unknown key {name:?}; {hint}"))
    }

    fn boolean(&self, value: &Spanned<DeValue<'_>>) -> Result<bool, SwitchesError> {
        value.get_ref().as_bool().ok_or_else(|| {
            let kind = value.get_ref().type_str();
            self.error(
                &value.span(),
                format!("a {kind} where true or false is meant"),
            )
        })
    }

    fn table<'v, 't>(
        &self,
        value: &'v Spanned<DeValue<'t>>,
    ) -> Result<&'v DeTable<'t>, SwitchesError> {
        value.get_ref().as_table().ok_or_else(|| {
            let kind = value.get_ref().type_str();
            self.error(&value.span(), format!("a {kind} where a table is meant"))
        })
    }

    fn one(&self, value: &Spanned<DeValue<'_>>, mut one: One) -> Result<One, SwitchesError> {
        for (key, value) in self.table(value)? {
            let place = match key.get_ref().as_ref() {
                "pre" => &mut one.pre,
                "call" => &mut one.call,
                "post" => &mut one.post,
                _ => return Err(self.unknown(key, &["pre", "call", "post"])),
            };
            *place = self.boolean(value)?;
        }
        Ok(one)
    }

    fn switches(&self, root: &DeTable<'_>) -> Result<Switches, SwitchesError> {
        let mut switches = Switches::default();
        let mut default = One {
            pre: true,
            call: true,
            post: true,
        };
        let mut operations = None;
        for (key, value) in root {
            match key.get_ref().as_ref() {
                "metadata-only" => switches.metadata_only = self.boolean(value)?,
                "default" => default = self.one(value, default)?,
                "operations" => operations = Some(self.table(value)?),
                _ => return Err(self.unknown(key, &["metadata-only", "default", "operations"])),
            }
        }
        for kind in OperationKind::ALL {
            switches.set(*kind, default);
        }
        for (key, value) in operations.into_iter().flatten() {
            let kind = key.get_ref().parse::<OperationKind>();
            let kind = kind.map_err(|error| self.error(&key.span(), error.to_string()))?;
            switches.set(kind, self.one(value, default)?);
        }
        Ok(switches)
    }
}

impl std::str::FromStr for Switches {
    type Err = SwitchesError;

    fn from_str(text: &str) -> Result<Self, SwitchesError> {
        let source = Source(text);
        let root = DeTable::parse(text).map_err(|error| {
            let at = error.span().unwrap_or(0..0);
            source.error(&at, error.message())
        })?;
        source.switches(root.get_ref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_start_from_the_default() {
        let text = "metadata-only = true\n[operations.read]\npost = true\n[default]\npre = false\npost = false\n";
        let switches: Switches = text.parse().unwrap();
        assert!(switches.metadata_only);
        assert!(switches.pre.is_empty());
        assert_eq!(switches.post, OperationSet::of(&[OperationKind::Read]));
        assert_eq!(switches.call, OperationSet::ALL);
        assert_eq!("".parse::<Switches>().unwrap(), Switches::default());
    }

    #[test]
    fn errors_say_where() {
        for (text, line, column, says) in [
            ("metadata-only = 1\n", 1, 17, "true or false"),
            ("\n[operations.lokup]\npre = true\n", 2, 13, "\"lookup\""),
            ("[operations]\nread = { pst = true }\n", 2, 10, "\"post\""),
            ("[defualt]\n", 1, 2, "\"default\""),
            ("[default]\npre = \n", 2, 7, ""),
            ("[operations]\nread = true\n", 2, 8, "a table"),
        ] {
            let error = text.parse::<Switches>().unwrap_err();
            assert_eq!(
                (error.line, error.column),
                (line, column),
                "{text:?}: {error}"
            );
            assert!(error.to_string().contains(says), "{text:?}: {error}");
        }
    }
}
