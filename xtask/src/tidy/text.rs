//! Rules for any text: length, marks of unfinished work, blanks at line ends.

use std::path::Path;

use super::{Finding, has_extension};

/// A file that does not fit in a reader's head is cut.
const FILE_LINES: usize = 600;

const CODE: &[&str] = &["rs", "java", "py", "c", "h", "sh"];
const PROSE: &[&str] = &["md", "toml", "yml", "yaml"];

// Written in halves, so that this file does not find itself.
const MARKS: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];
const MACROS: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimple", "mented!"),
    concat!("db", "g!"),
];

pub(super) fn check(path: &Path, contents: &str, findings: &mut Vec<Finding>) {
    let is = |list: &[&str]| list.iter().any(|extension| has_extension(path, extension));
    let code = is(CODE) || path.ends_with("Makefile");
    if !code && !is(PROSE) {
        return;
    }
    let mut report =
        |line: usize, message: String| findings.push(Finding::new(path, line, message));
    let lines = contents.lines().count();
    // A generated header is as long as what it is generated from.
    if code && lines > FILE_LINES && !has_extension(path, "h") {
        report(
            0,
            format!("{lines} lines; the limit is {FILE_LINES}: cut it along a seam"),
        );
    }
    if !contents.is_empty() && !contents.ends_with('\n') {
        report(lines, "no newline at the end of the file".to_owned());
    }
    for (index, line) in contents.lines().enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            report(index + 1, "blanks at the end of the line".to_owned());
        }
        if !code {
            continue;
        }
        for mark in MARKS.iter().filter(|mark| has_word(line, mark)) {
            report(
                index + 1,
                format!("`{mark}`: finish it, or say the limit in the documentation"),
            );
        }
        for name in MACROS {
            if has_extension(path, "rs") && has_word(line, name) {
                report(index + 1, format!("`{name}`: finish it or take it out"));
            }
        }
    }
}

/// Whether `word` stands in `line` with no letter, digit or underscore beside it.
fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(start, _)| {
        let before = line.get(..start).and_then(|text| text.chars().next_back());
        let after = line
            .get(start + word.len()..)
            .and_then(|text| text.chars().next());
        !before.is_some_and(part_of_word)
            && (word.ends_with('!') || !after.is_some_and(part_of_word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, contents: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(Path::new(path), contents, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_file_at_the_limit_passes_and_one_line_more_does_not() {
        assert!(messages("a.rs", &"//\n".repeat(FILE_LINES)).is_empty());
        let found = messages("a.rs", &"//\n".repeat(FILE_LINES + 1));
        assert_eq!(
            found,
            ["a.rs: 601 lines; the limit is 600: cut it along a seam"]
        );
    }

    #[test]
    fn marks_are_found_as_words_only() {
        let mark = MARKS[2];
        assert_eq!(messages("a.c", &format!("// {mark} later\n")).len(), 1);
        assert!(messages("a.c", &format!("mkstemp(\"{mark}{mark}\");\n")).is_empty());
        let call = MACROS[0];
        assert_eq!(
            messages("a.rs", &format!("fn f() {{ {call}() }}\n")).len(),
            1
        );
        assert!(messages("a.rs", &format!("fn f() {{ not_{call}() }}\n")).is_empty());
    }

    #[test]
    fn prose_is_not_searched_for_marks_but_for_blanks() {
        let mark = MARKS[0];
        assert!(messages("a.md", &format!("no {mark} is left\n")).is_empty());
        assert_eq!(
            messages("a.md", "end \n"),
            ["a.md:1: blanks at the end of the line"]
        );
    }

    #[test]
    fn other_files_are_left_alone() {
        assert!(messages("a.csv", "1, \n").is_empty());
    }
}
