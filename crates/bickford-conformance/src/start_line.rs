//! The lines by which the daemon says what is in force.

use std::collections::BTreeMap;

/// What a daemon's log says up to its `mounted` line, in words of the form `key=value`: the session
/// has said before what it negotiated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartLine {
    line: String,
    pairs: BTreeMap<String, String>,
}

impl StartLine {
    /// Finds the line in a log, once its whole is written.
    #[must_use]
    pub fn find(log: &str) -> Option<Self> {
        let complete = log.rfind('\n').and_then(|end| log.get(..end))?;
        let is_last = |line: &&str| line.split_whitespace().any(|word| word == "mounted");
        let line = complete.lines().find(is_last)?;
        let pairs = complete
            .split_inclusive('\n')
            .scan(false, |after_last, part| {
                let read = !*after_last;
                *after_last |= is_last(&part);
                read.then_some(part)
            })
            .flat_map(str::split_whitespace)
            .filter_map(|word| word.split_once('='))
            .map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned()))
            .collect();
        Some(Self {
            line: line.to_owned(),
            pairs,
        })
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs.get(key).map(String::as_str)
    }

    /// The line as it was logged.
    #[must_use]
    pub fn line(&self) -> &str {
        &self.line
    }

    /// What tells one combination from another, in short.
    #[must_use]
    pub fn summary(&self) -> String {
        let keys = ["preset", "transport", "workers", "io"];
        let found = keys
            .iter()
            .filter_map(|key| Some(format!("{key}={}", self.get(key)?)));
        found.collect::<Vec<_>>().join(" ")
    }

    /// What of `wanted` is not in force, as a sentence; `None` when all of it is.
    #[must_use]
    pub fn differs_from(&self, wanted: &[(&str, String)]) -> Option<String> {
        let differences: Vec<String> = wanted
            .iter()
            .filter(|(key, value)| self.get(key) != Some(value.as_str()))
            .map(|(key, value)| {
                let found = self.get(key).unwrap_or("nothing");
                format!("{key}: asked for {value}, the daemon says {found}")
            })
            .collect();
        (!differences.is_empty()).then(|| differences.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO bickford: session started transport=\"dev_fuse\" workers=4\n\
                       INFO bickford: mounted source=/a\nlater io=other\n";

    #[test]
    fn pairs_are_read_up_to_the_mounted_line() {
        let line = StartLine::find(LOG).expect("line");
        assert_eq!(line.get("transport"), Some("dev_fuse"));
        assert_eq!(line.get("workers"), Some("4"));
        assert_eq!(line.get("source"), Some("/a"));
        assert_eq!(line.get("io"), None);
        assert!(line.line().ends_with("mounted source=/a"));
    }

    #[test]
    fn a_line_not_yet_ended_is_not_read() {
        assert_eq!(StartLine::find("started\nmounted transport=dev"), None);
        assert_eq!(StartLine::find("nothing\n"), None);
    }

    #[test]
    fn a_difference_is_said() {
        let line = StartLine::find(LOG).expect("line");
        let same = [("workers", "4".to_owned())];
        assert_eq!(line.differs_from(&same), None);
        let other = [("workers", "1".to_owned()), ("io", "direct".to_owned())];
        assert_eq!(
            line.differs_from(&other).as_deref(),
            Some(
                "workers: asked for 1, the daemon says 4; io: asked for direct, the daemon says nothing"
            )
        );
    }
}
