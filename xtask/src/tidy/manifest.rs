//! Rules for manifests: every member takes the lints of the workspace, and what is published has the licences beside it.

use std::path::Path;

use super::{Files, Finding};

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    for (path, contents) in files {
        if !path.ends_with("Cargo.toml") || outside_workspace(path) {
            continue;
        }
        let mut report = |message: String| findings.push(Finding::new(path, 0, message));
        match contents.parse::<toml::Table>() {
            Err(error) => report(format!("not TOML: {}", error.message())),
            Ok(table) if !table.contains_key("package") => {}
            Ok(table) => {
                let inherits = table
                    .get("lints")
                    .and_then(|lints| lints.get("workspace"))
                    .and_then(toml::Value::as_bool);
                if inherits != Some(true) {
                    report("no `[lints] workspace = true`: add it".to_owned());
                }
                for licence in missing_licences(files, path, &table) {
                    report(format!(
                        "no {licence} beside it: link it, or `publish = false`"
                    ));
                }
            }
        }
    }
}

/// A package of a registry holds only what is in its directory, and both licences ask for their text.
fn missing_licences(files: &Files, manifest: &Path, table: &toml::Table) -> Vec<&'static str> {
    let publish = table.get("package").and_then(|it| it.get("publish"));
    if publish.and_then(toml::Value::as_bool) == Some(false) {
        return Vec::new();
    }
    let mut licences = vec!["LICENSE-APACHE", "LICENSE-MIT"];
    licences.retain(|name| !files.contains_key(&manifest.with_file_name(name)));
    licences
}

/// Builds of their own, which have no workspace to take lints from.
fn outside_workspace(path: &Path) -> bool {
    path.starts_with("bench/compare/peers") || path.starts_with("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, contents: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let files = Files::from([(path.into(), contents.to_owned())]);
        check(&files, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_package_must_inherit_the_lints() {
        let bare = "[package]\nname = \"a\"\npublish = false\n";
        assert_eq!(messages("a/Cargo.toml", bare).len(), 1);
        let inherits = format!("{bare}[lints]\nworkspace = true\n");
        assert!(messages("a/Cargo.toml", &inherits).is_empty());
        assert!(messages("fuzz/Cargo.toml", bare).is_empty());
        assert!(messages("Cargo.toml", "[workspace]\n").is_empty());
    }

    #[test]
    fn what_is_published_has_the_licences() {
        let package = "[package]\nname = \"a\"\n[lints]\nworkspace = true\n";
        assert_eq!(
            messages("a/Cargo.toml", package),
            ["LICENSE-APACHE", "LICENSE-MIT"].map(|licence| format!(
                "a/Cargo.toml: no {licence} beside it: link it, or `publish = false`"
            ))
        );
    }

    #[test]
    fn a_broken_manifest_is_said() {
        let found = messages("a/Cargo.toml", "[package\n");
        assert!(found[0].starts_with("a/Cargo.toml: not TOML"), "{found:?}");
    }
}
