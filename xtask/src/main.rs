//! Developer commands: `cargo xtask tidy`.

mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy

  tidy    check the rules that neither rustfmt nor clippy knows:
          file and function length, unsafe outside its home, dead files,
          tests' skips that Cargo hides,
          marks of unfinished work, trailing blanks, what README.md refers to,
          which measurements are kept, the Rust that dependencies need,
          the licences beside what is published";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["tidy"] => run_tidy(),
        ["help" | "-h" | "--help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    match top_directory().and_then(|top| tidy::check(&top)) {
        Ok(findings) if findings.is_empty() => {
            println!("tidy: nothing to mend");
            ExitCode::SUCCESS
        }
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} to mend", findings.len());
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("tidy: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The top directory of the work tree this command was built from.
fn top_directory() -> Result<PathBuf, String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = tidy::output_of("git", here, &["rev-parse", "--show-toplevel"])?;
    Ok(PathBuf::from(String::from_utf8_lossy(&output).trim()))
}
