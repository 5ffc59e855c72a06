//! Rules for Rust source: function length, `unsafe` outside its home, skips that nobody sees.

use std::path::{Component, Path};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Finding;

/// A function that does not fit on a screen is cut.
const FUNCTION_LINES: usize = 70;

/// Places besides `sys/` where `unsafe` is at home: the C interface, and the adapters of other
/// libraries, which are no part of the product.
const UNSAFE_HOMES: &[&str] = &["crates/bickford-ffi", "bench/compare/peers"];

/// How what a test leaves out begins.
const LEFT_OUT: &[&str] = &["skipped", "left out"];

pub(super) fn check(path: &Path, contents: &str, findings: &mut Vec<Finding>) {
    let mut report =
        |line: usize, message: String| findings.push(Finding::new(path, line, message));
    let file = match syn::parse_file(contents) {
        Ok(file) => file,
        Err(error) => {
            report(error.span().start().line, format!("not Rust: {error}"));
            return;
        }
    };
    let mut functions = LongFunctions::default();
    functions.visit_file(&file);
    for (line, name, lines) in functions.found {
        report(
            line,
            format!("fn {name} has {lines} lines; the limit is {FUNCTION_LINES}: cut it"),
        );
    }
    let Ok(tokens) = contents.parse::<TokenStream>() else {
        return;
    };
    let mut lines = Vec::new();
    unseen_skips(tokens.clone(), &mut lines);
    for line in lines {
        report(
            line,
            "what a test leaves out is written to std::io::stderr(): Cargo shows no other output of tests that pass".to_owned(),
        );
    }
    if !unsafe_at_home(path) {
        let mut lines = Vec::new();
        unsafe_tokens(tokens, &mut lines);
        for line in lines {
            report(
                line,
                "`unsafe` outside a sys/ directory: move it there behind a safe function"
                    .to_owned(),
            );
        }
    }
}

fn unsafe_at_home(path: &Path) -> bool {
    let below_sys = path.components().any(|component| {
        matches!(component, Component::Normal(name) if name == "sys" || name == "sys.rs")
    });
    below_sys || UNSAFE_HOMES.iter().any(|home| path.starts_with(home))
}

fn unsafe_tokens(tokens: TokenStream, lines: &mut Vec<usize>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "unsafe" => lines.push(ident.span().start().line),
            TokenTree::Group(group) => unsafe_tokens(group.stream(), lines),
            _ => {}
        }
    }
}

/// Lines of macros that print what is left out: a test's output is captured there.
fn unseen_skips(tokens: TokenStream, lines: &mut Vec<usize>) {
    let mut prints = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                prints = ["print", "println", "eprint", "eprintln"]
                    .iter()
                    .any(|it| ident == it);
            }
            TokenTree::Group(group) => {
                if prints && group.stream().into_iter().next().is_some_and(is_skip) {
                    lines.push(group.span_open().start().line);
                }
                unseen_skips(group.stream(), lines);
                prints = false;
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn is_skip(token: TokenTree) -> bool {
    let text = token.to_string().to_lowercase();
    let words = text.strip_prefix('"');
    words.is_some_and(|words| LEFT_OUT.iter().any(|begin| words.starts_with(begin)))
}

/// Line, name and length of each function over the limit.
#[derive(Default)]
struct LongFunctions {
    found: Vec<(usize, String, usize)>,
}

impl LongFunctions {
    fn measure(&mut self, signature: &syn::Signature, end: Span) {
        let start = signature.fn_token.span.start().line;
        let lines = end.end().line + 1 - start;
        if lines > FUNCTION_LINES {
            self.found.push((start, signature.ident.to_string(), lines));
        }
    }
}

impl<'ast> Visit<'ast> for LongFunctions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.measure(&item.sig, item.block.brace_token.span.close());
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.measure(&item.sig, item.block.brace_token.span.close());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.measure(&item.sig, block.brace_token.span.close());
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(path: &str, contents: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(Path::new(path), contents, &mut findings);
        findings.iter().map(Finding::to_string).collect()
    }

    /// A function of `lines` lines, its signature and closing brace counted.
    fn function(lines: usize) -> String {
        format!("fn f() {{\n{}}}\n", "    g();\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_at_the_limit_passes_and_one_line_more_does_not() {
        assert!(messages("a.rs", &function(FUNCTION_LINES)).is_empty());
        assert_eq!(
            messages("a.rs", &function(FUNCTION_LINES + 1)),
            ["a.rs:1: fn f has 71 lines; the limit is 70: cut it"]
        );
    }

    #[test]
    fn methods_and_default_methods_are_measured() {
        let long = function(FUNCTION_LINES + 1);
        for outer in ["impl A", "trait A", "mod a"] {
            let found = messages("a.rs", &format!("{outer} {{\n{long}}}\n"));
            assert_eq!(found.len(), 1, "{outer}");
        }
    }

    #[test]
    fn unsafe_is_found_in_macros_and_not_in_words_or_strings() {
        assert_eq!(messages("src/a.rs", "m! { unsafe { f() } }\n").len(), 1);
        let harmless = "#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\n";
        assert!(messages("src/a.rs", harmless).is_empty());
    }

    #[test]
    fn unsafe_is_at_home_in_sys_and_in_the_c_interface() {
        let code = "fn f() { unsafe { g() } }\n";
        for path in [
            "crates/bickford/src/sys/ring.rs",
            "crates/bickford-eval/src/sys.rs",
            "crates/bickford-ffi/src/lib.rs",
        ] {
            assert!(messages(path, code).is_empty(), "{path}");
        }
        assert_eq!(messages("crates/bickford/src/system.rs", code).len(), 1);
    }

    #[test]
    fn skips_are_not_said_where_output_is_captured() {
        for code in [
            "fn f() { println!(\"SKIPPED: no {}\", 1) }\n",
            "fn f() { m! { std::eprintln!(\"left out\") } }\n",
        ] {
            assert_eq!(messages("tests/a.rs", code).len(), 1, "{code}");
        }
        for code in [
            "fn f() { say(format_args!(\"skipped: no {}\", 1)) }\n",
            "fn f() { eprintln!(\"mount: skipped\") }\n",
            "fn f() { let println = 1; g(\"skipped\"); }\n",
        ] {
            assert!(messages("tests/a.rs", code).is_empty(), "{code}");
        }
    }

    #[test]
    fn what_is_not_rust_is_said() {
        let found = messages("a.rs", "fn {\n");
        assert!(found[0].starts_with("a.rs:1: not Rust"), "{found:?}");
    }
}
