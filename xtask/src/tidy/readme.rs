//! What README.md tells a newcomer to run, and what any page links to, must be there.

use std::path::Path;

use super::{Files, Finding, normalize};

const README: &str = "README.md";

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    targets(files, findings);
    // Pages beside sources are rustdoc's, which checks their links itself.
    let page = |path: &Path| {
        let source = path.components().any(|c| c.as_os_str() == "src");
        path.extension().is_some_and(|e| e == "md") && (!source || path.starts_with("docs"))
    };
    for (path, text) in files.iter().filter(|(path, _)| page(path)) {
        links(files, path, text, findings);
    }
}

/// The targets of make that README.md names.
fn targets(files: &Files, findings: &mut Vec<Finding>) {
    let Some(readme) = files.get(Path::new(README)) else {
        return;
    };
    let makefile = files.get(Path::new("Makefile")).map_or("", String::as_str);
    let mut fenced = false;
    for (index, line) in readme.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced
            && let Some(target) = make_target(line)
            && !has_target(makefile, target)
        {
            let message = format!("`make {target}`: the Makefile has no such target");
            findings.push(Finding::new(README, index + 1, message));
        }
    }
}

/// Links of a page to files or directories of the tree, from where it is.
fn links(files: &Files, page: &Path, text: &str, findings: &mut Vec<Finding>) {
    let directory = page.parent().unwrap_or(Path::new(""));
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        for link in local_links(line).filter(|_| !fenced) {
            let target = normalize(&directory.join(link));
            if !files.keys().any(|path| path.starts_with(&target)) {
                let message = format!("the link to {link} leads nowhere");
                findings.push(Finding::new(page, index + 1, message));
            }
        }
    }
}

/// The target of a line that runs make, with or without a prompt before it.
fn make_target(line: &str) -> Option<&str> {
    let command = line.trim_start().trim_start_matches(['$', '#', ' ']);
    let target = command.strip_prefix("make ")?.split_whitespace().next()?;
    (!target.starts_with('#')).then_some(target)
}

fn has_target(makefile: &str, target: &str) -> bool {
    makefile.lines().any(|line| {
        line.split_once(':')
            .is_some_and(|(names, _)| names.split_whitespace().any(|name| name == target))
    })
}

/// The paths of Markdown links that stay in the tree, without their anchors.
fn local_links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?.split('#').next()?;
        let local = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        local.then(|| target.trim_end_matches('/'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(readme: &str) -> Vec<String> {
        all(readme, "")
    }

    fn all(readme: &str, more: &str) -> Vec<String> {
        let files = Files::from([
            (README.into(), readme.to_owned()),
            ("Makefile".into(), "test: build\n\tcargo test\n".to_owned()),
            ("docs/guide.md".into(), "[up](../README.md)".to_owned()),
            ("docs/more/of.md".into(), more.to_owned()),
        ]);
        let mut findings = Vec::new();
        check(&files, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn targets_that_exist_pass_and_others_do_not() {
        assert!(messages("```sh\n$ make test\nmake test # all\n# make test\n```\n").is_empty());
        assert_eq!(
            messages("```\n# make demo\n```\n"),
            ["README.md:2: `make demo`: the Makefile has no such target"]
        );
        assert!(messages("You make demos with it.\n").is_empty());
    }

    #[test]
    fn links_into_the_tree_are_followed() {
        assert!(messages("[a](docs/guide.md#b) [b](docs/) [c](https://d.e/f)\n").is_empty());
        assert_eq!(
            messages("[a](docs/none.md)\n"),
            ["README.md:1: the link to docs/none.md leads nowhere"]
        );
    }

    #[test]
    fn links_of_other_pages_are_followed_from_where_these_are() {
        let held = "[a](../guide.md) [b](of.md) [c](../../docs) [d](#e)";
        assert!(all("", held).is_empty());
        assert_eq!(
            all("", "\n[a](guide.md)\n```\n[b](none)\n```\n"),
            ["docs/more/of.md:2: the link to guide.md leads nowhere"]
        );
    }
}
