//! What `--log` may say.

use tracing::level_filters::LevelFilter;

/// The crates whose modules can be named.
const CRATES: &[&str] = &[
    "bickford",
    "bickford_crypt",
    "bickford_eval",
    "bickford_layers",
    "bickford_program",
    "bickford_stackfs",
];

const LEVELS: &[&str] = &["off", "error", "warn", "info", "debug", "trace"];

/// Whether it is LEVEL or MODULE=LEVEL, several with commas between; if not, what is wrong.
///
/// The filter would take any word for the name of a module, and log nothing.
pub(super) fn check(text: &str, modules: &[&str]) -> Result<(), String> {
    text.split(',')
        .try_for_each(|part| directive(part.trim(), modules))
}

fn directive(text: &str, modules: &[&str]) -> Result<(), String> {
    let (module, level) = match text.rsplit_once('=') {
        Some((module, level)) => (Some(module), level),
        None => (None, text),
    };
    if level.is_empty() || level.parse::<LevelFilter>().is_err() {
        return Err(format!("{level:?} is no level"));
    }
    match module {
        Some(module) if !is_known(module, modules) => {
            Err(format!("{module:?} is no module of ours"))
        }
        _ => Ok(()),
    }
}

fn is_known(module: &str, modules: &[&str]) -> bool {
    let mut names = module.split("::");
    let known = |name| CRATES.contains(&name) || modules.contains(&name);
    names.next().is_some_and(known) && names.all(is_a_name)
}

fn is_a_name(text: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !text.is_empty() && text.chars().all(known)
}

/// What may be written, for messages.
pub(super) fn allowed(modules: &[&str]) -> String {
    let crates = [CRATES, modules].concat();
    format!(
        "write LEVEL or MODULE=LEVEL, with commas between: levels are {}; modules are {} and those below, \
         such as bickford::session",
        LEVELS.join(", "),
        crates.join(", ")
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
            "mine::node=trace",
        ] {
            assert_eq!(check(text, &["mine"]), Ok(()), "{text}");
        }
        for text in [
            "",
            "nonsense",
            "trace=",
            "garbage::",
            "hyper=debug",
            "mine",
            "bickford",
            "bickford=loud",
            "info,",
            "bickford::=info",
            "bickford[x]=info",
        ] {
            assert!(check(text, &["mine"]).is_err(), "{text}");
        }
    }

    #[test]
    fn every_level_that_is_named_is_one() {
        for level in LEVELS {
            assert_eq!(check(level, &[]), Ok(()), "{level}");
        }
    }
}
