//! What `--log` may say.

use tracing::level_filters::LevelFilter;

/// The crates whose modules can be named.
const CRATES: &[&str] = &[
    "bickford",
    "bickford_crypt",
    "bickford_eval",
    "bickford_layers",
    "bickford_stackfs",
];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Whether it is LEVEL or MODULE=LEVEL, several with commas between; if not, what is wrong.
///
/// The filter would take any word for the name of a module, and log nothing.
pub(super) fn check(text: &str) -> Result<(), String> {
    text.split(',').try_for_each(|part| directive(part.trim()))
}

fn directive(text: &str) -> Result<(), String> {
    let (module, level) = match text.rsplit_once('=') {
        Some((module, level)) => (Some(module), level),
        None => (None, text),
    };
    if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        return Err(format!("{level:?} is no level"));
    }
    match module {
        Some(module) if !is_ours(module) => Err(format!("{module:?} is no module of ours")),
        _ => Ok(()),
    }
}

fn is_ours(module: &str) -> bool {
    let mut names = module.split("::");
    names.next().is_some_and(|name| CRATES.contains(&name)) && names.all(is_a_name)
}

fn is_a_name(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(known)
}

/// What may be written, for messages.
pub(super) fn allowed() -> String {
    format!(
        "write LEVEL or MODULE=LEVEL, with commas between: levels are {}; modules are {} and those below, \
         such as bickford::session",
        LEVELS.join(", "),
        CRATES.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_modules_are_known() {
        for text in [
            "warn",
            "INFO",
            "off",
            "bickford=debug, warn",
            "bickford_stackfs::node=trace",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
        for text in [
            "",
            "nonsense",
            "trace=",
            "garbage::",
            "hyper=debug",
            "bickford",
            "bickford=loud",
            "info,",
            "bickford::=info",
            "bickford[x]=info",
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }

    #[test]
    fn every_level_that_is_named_is_one() {
        for level in LEVELS {
            assert_eq!(check(level), Ok(()), "{level}");
        }
    }
}
