//! Dead files: Rust sources that no target and no `mod` leads to.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

use super::{Files, Finding, has_extension, normalize};

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    let mut reached = BTreeSet::new();
    for (path, contents) in files {
        if !path.ends_with("Cargo.toml") {
            continue;
        }
        let package = path.parent().unwrap_or(Path::new(""));
        for root in target_roots(package, contents, files) {
            follow(&root, true, files, &mut reached);
        }
    }
    for path in files.keys().filter(|path| has_extension(path, "rs")) {
        if !reached.contains(path) {
            let message = "no target and no `mod` leads here: use it or delete it";
            findings.push(Finding::new(path, 0, message));
        }
    }
}

/// The root files of a package's targets: those Cargo finds by itself and those the manifest names.
fn target_roots(package: &Path, manifest: &str, files: &Files) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for path in files.keys() {
        let Ok(inside) = path.strip_prefix(package) else {
            continue;
        };
        let parts: Vec<&str> = inside.iter().filter_map(|part| part.to_str()).collect();
        let root = match parts.as_slice() {
            ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
            ["tests" | "examples" | "benches", file] | ["src", "bin", file] => {
                file.ends_with(".rs")
            }
            ["tests" | "examples" | "benches", _, "main.rs"] => true,
            ["src", "bin", _, "main.rs"] => true,
            _ => false,
        };
        if root {
            roots.push(path.clone());
        }
    }
    if let Ok(table) = manifest.parse::<toml::Table>() {
        for key in ["lib", "bin", "example", "test", "bench"] {
            let targets = match table.get(key) {
                Some(toml::Value::Array(targets)) => targets.as_slice(),
                Some(target) => std::slice::from_ref(target),
                None => &[],
            };
            let paths = targets
                .iter()
                .filter_map(|target| target.get("path")?.as_str());
            roots.extend(paths.map(|path| normalize(&package.join(path))));
        }
    }
    roots
}

/// Marks `path` and every file its modules lead to.
fn follow(path: &Path, root: bool, files: &Files, reached: &mut BTreeSet<PathBuf>) {
    let Some(contents) = files.get(path) else {
        return;
    };
    if !reached.insert(path.to_owned()) {
        return;
    }
    let Ok(file) = syn::parse_file(contents) else {
        return;
    };
    let beside = path.parent().unwrap_or(Path::new(""));
    let children = if root || path.ends_with("mod.rs") {
        beside.to_owned()
    } else {
        path.with_extension("")
    };
    let mut modules = Modules {
        beside: beside.to_owned(),
        children,
        candidates: Vec::new(),
    };
    modules.visit_file(&file);
    for candidate in modules.candidates {
        follow(&normalize(&candidate), false, files, reached);
    }
}

/// Collects where the modules and includes of one file may lie.
struct Modules {
    /// Directory of the file itself.
    beside: PathBuf,
    /// Directory of the files of its modules.
    children: PathBuf,
    candidates: Vec<PathBuf>,
}

impl<'ast> Visit<'ast> for Modules {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let name = item.ident.to_string();
        if item.content.is_some() {
            self.children.push(&name);
            visit::visit_item_mod(self, item);
            self.children.pop();
        } else if let Some(path) = path_attribute(&item.attrs) {
            self.candidates.push(self.beside.join(path));
        } else {
            self.candidates
                .push(self.children.join(format!("{name}.rs")));
            self.candidates
                .push(self.children.join(&name).join("mod.rs"));
        }
    }

    fn visit_macro(&mut self, invocation: &'ast syn::Macro) {
        if invocation.path.is_ident("include")
            && let Ok(path) = invocation.parse_body::<syn::LitStr>()
        {
            self.candidates.push(self.beside.join(path.value()));
        }
        visit::visit_macro(self, invocation);
    }
}

fn path_attribute(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let syn::Meta::NameValue(meta) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(literal) = &meta.value else {
            return None;
        };
        match &literal.lit {
            syn::Lit::Str(path) if meta.path.is_ident("path") => Some(path.value()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dead(files: &[(&str, &str)]) -> Vec<PathBuf> {
        let files = files
            .iter()
            .map(|(path, contents)| (PathBuf::from(path), (*contents).to_owned()))
            .collect();
        let mut findings = Vec::new();
        check(&files, &mut findings);
        findings.into_iter().map(|finding| finding.path).collect()
    }

    #[test]
    fn modules_are_followed_through_every_form() {
        let live = [
            (
                "c/Cargo.toml",
                "[[bin]]\nname = \"b\"\npath = \"tools/b.rs\"\n",
            ),
            (
                "c/src/lib.rs",
                "mod a; mod inline { mod deep; } #[path = \"else.rs\"] mod odd;",
            ),
            ("c/src/a.rs", "mod below; include!(\"data/table.rs\");"),
            ("c/src/a/below.rs", ""),
            ("c/src/data/table.rs", ""),
            ("c/src/inline/deep/mod.rs", "mod leaf;"),
            ("c/src/inline/deep/leaf.rs", ""),
            ("c/src/else.rs", ""),
            ("c/tests/t.rs", "mod common;"),
            ("c/tests/common/mod.rs", ""),
            ("c/tools/b.rs", ""),
        ];
        assert!(dead(&live).is_empty(), "{:?}", dead(&live));
    }

    #[test]
    fn files_beside_the_tree_are_dead() {
        let files = [
            ("c/Cargo.toml", ""),
            ("c/src/lib.rs", "mod a;"),
            ("c/src/a.rs", ""),
            ("c/src/b.rs", ""),
            ("c/tests/common/mod.rs", ""),
        ];
        assert_eq!(
            dead(&files),
            [Path::new("c/src/b.rs"), Path::new("c/tests/common/mod.rs")]
        );
    }
}
