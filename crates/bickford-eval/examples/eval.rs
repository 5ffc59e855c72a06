//! The evaluation as a program of its own: `cargo run -p bickford-eval --example eval -- --help`.

use std::process::ExitCode;

use bickford_eval::{EvalArgs, Ui};
use clap::Parser;

/// The evaluation as a program of its own.
#[derive(Parser)]
#[command(name = "eval")]
struct Command {
    #[command(flatten)]
    args: EvalArgs,
}

fn main() -> ExitCode {
    let command = Command::parse();
    let done = Ui::new(&[]).map_err(|e| e.to_string());
    match done.and_then(|ui| bickford_eval::run(&command.args, &ui).map_err(|e| e.to_string())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("eval: {error}");
            ExitCode::FAILURE
        }
    }
}
