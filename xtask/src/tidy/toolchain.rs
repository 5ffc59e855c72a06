//! The Rust that is promised is enough for every dependency, and README.md tells the same.

use std::path::Path;

use serde_json::Value;

use super::{Files, Finding, output_of};

const MANIFEST: &str = "Cargo.toml";
const README: &str = "README.md";

pub(super) fn check(top: &Path, files: &Files, findings: &mut Vec<Finding>) -> Result<(), String> {
    let manifest = files.get(Path::new(MANIFEST)).map_or("", String::as_str);
    let promised = promised(manifest)?;
    let metadata = metadata(top)?;
    let readme = files.get(Path::new(README)).map_or("", String::as_str);
    findings.extend(asks_more(&metadata, &promised));
    findings.extend(told(readme, &promised));
    Ok(())
}

/// `rust-version` of the workspace.
fn promised(manifest: &str) -> Result<String, String> {
    let table: toml::Table = manifest
        .parse()
        .map_err(|error| format!("{MANIFEST}: {error}"))?;
    table
        .get("workspace")
        .and_then(|workspace| workspace.get("package"))
        .and_then(|package| package.get("rust-version"))
        .and_then(toml::Value::as_str)
        .map(str::to_owned)
        .ok_or_else(|| format!("{MANIFEST}: no workspace.package.rust-version"))
}

fn metadata(top: &Path) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let arguments = ["metadata", "--locked", "--format-version", "1"];
    let output = output_of(&cargo, top, &arguments)?;
    serde_json::from_slice(&output).map_err(|error| format!("cargo metadata: {error}"))
}

fn asks_more(metadata: &Value, promised: &str) -> Vec<Finding> {
    let packages = metadata["packages"].as_array();
    packages
        .into_iter()
        .flatten()
        .filter_map(|package| {
            let needs = package["rust_version"].as_str()?;
            (numbers(needs) > numbers(promised)).then(|| {
                let message = format!(
                    "{} {} needs Rust {needs}, rust-version promises {promised}: raise it, or take an older one",
                    package["name"].as_str().unwrap_or_default(),
                    package["version"].as_str().unwrap_or_default(),
                );
                Finding::new(MANIFEST, 0, message)
            })
        })
        .collect()
}

fn told(readme: &str, promised: &str) -> Option<Finding> {
    let sentence = format!("a Rust toolchain ({promised} or later)");
    (!readme.contains(&sentence)).then(|| {
        let message = format!("does not say `{sentence}`, as {MANIFEST} does");
        Finding::new(README, 0, message)
    })
}

/// A version as numbers, for comparing; of three, as cargo takes `1.90` for `1.90.0`.
fn numbers(version: &str) -> [u64; 3] {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_said() {
        let metadata = json!({"packages": [
            {"name": "old", "version": "1.0.0", "rust_version": "1.9"},
            {"name": "same", "version": "1.0.0", "rust_version": "1.90.0"},
            {"name": "any", "version": "1.0.0", "rust_version": null},
            {"name": "new", "version": "4.5.0", "rust_version": "1.91"},
        ]});
        let found: Vec<String> = asks_more(&metadata, "1.90")
            .iter()
            .map(Finding::to_string)
            .collect();
        assert_eq!(
            found,
            [
                "Cargo.toml: new 4.5.0 needs Rust 1.91, rust-version promises 1.90: raise it, or take an older one"
            ]
        );
    }

    #[test]
    fn the_readme_tells_the_rust_of_the_manifest() {
        let manifest = "[workspace.package]\nrust-version = \"1.90\"\n";
        let promised = promised(manifest).unwrap();
        assert_eq!(
            told("Both want a Rust toolchain (1.90 or later).", &promised),
            None
        );
        assert!(told("Both want a Rust toolchain (1.88 or later).", &promised).is_some());
    }
}
