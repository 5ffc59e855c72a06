//! Gives the shared library a name with the version of its interface, so that a program that was
//! linked with one version does not start with another.

use std::io;

const SOURCE: &str = "src/abi.rs";

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed={SOURCE}");
    let source = std::fs::read_to_string(SOURCE)?;
    let version = source
        .lines()
        .find_map(|line| line.strip_prefix("pub const BICKFORD_ABI_VERSION: u32 = "))
        .and_then(|rest| rest.trim_end_matches(';').parse::<u32>().ok())
        .ok_or_else(|| io::Error::other(format!("{SOURCE}: no BICKFORD_ABI_VERSION")))?;
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libbickford_ffi.so.{version}");
    Ok(())
}
