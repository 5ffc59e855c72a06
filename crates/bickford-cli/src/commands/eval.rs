//! `bickford eval`.

use std::process::ExitCode;

use bickford_eval::{EvalArgs, Ui};

use crate::cli::Failure;

pub(crate) type Arguments = EvalArgs;

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let ui = Ui::new(&["eval"]).map_err(|error| Failure::new(format!("eval: {error}")))?;
    bickford_eval::run(arguments, &ui).map_err(|error| Failure::new(format!("eval: {error}")))
}
