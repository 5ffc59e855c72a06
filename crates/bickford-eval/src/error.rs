//! What ends an evaluation. What ends a row only is kept with the row.

use std::path::PathBuf;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    /// A file of the results or a given workload.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: std::io::Error,
    },
    /// A workload file that is not in the subset.
    #[error("{}: {source}", path.display())]
    Wml {
        /// The file.
        path: PathBuf,
        /// Line, column, what was expected.
        source: crate::wml::WmlError,
    },
    /// A file of the results that cannot be read.
    #[error("{}: {source}; not a result of this version", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: serde_json::Error,
    },
    /// A line of the samples that cannot be read.
    #[error("{}: line {line}: {what}; not a result of this version", path.display())]
    Sample {
        /// The file.
        path: PathBuf,
        /// Which one, from 1.
        line: usize,
        /// What is wrong in it.
        what: String,
    },
    /// The arguments contradict each other or name what is not there.
    #[error("{0}")]
    Usage(String),
    /// The lower file system could not be set up or prepared.
    #[error("set up: {0}")]
    SetUp(String),
    /// The report could not be drawn.
    #[error("report: {0}")]
    Report(String),
}

impl EvalError {
    /// For `map_err` on operations on `path`.
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    /// For `map_err` on (de)serialisation of `path`.
    pub(crate) fn json(path: impl Into<PathBuf>) -> impl FnOnce(serde_json::Error) -> Self {
        let path = path.into();
        move |source| Self::Json { path, source }
    }
}
