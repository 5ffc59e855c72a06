//! What README.md tells a newcomer to run or to read must be there.

use std::path::Path;

use super::{Files, Finding};

const README: &str = "README.md";

pub(super) fn check(files: &Files, findings: &mut Vec<Finding>) {
    let Some(readme) = files.get(Path::new(README)) else {
        return;
    };
    let mut report = |line: usize, message: String| {
        findings.push(Finding {
            path: README.into(),
            line,
            message,
        });
    };
    let makefile = files.get(Path::new("Makefile")).map_or("", String::as_str);
    let mut fenced = false;
    for (index, line) in readme.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            if let Some(target) = make_target(line)
                && !has_target(makefile, target)
            {
                report(
                    index + 1,
                    format!("`make {target}`: the Makefile has no such target"),
                );
            }
        } else {
            for link in local_links(line) {
                let known = files.keys().any(|path| path.starts_with(link));
                if !known {
                    report(index + 1, format!("the link to {link} leads nowhere"));
                }
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
        let files = Files::from([
            (README.into(), readme.to_owned()),
            ("Makefile".into(), "test: build\n\tcargo test\n".to_owned()),
            ("docs/guide.md".into(), String::new()),
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
}
