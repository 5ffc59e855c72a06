//! Holds every structure, flag and constant against the kernel's own header: a C program that
//! includes `<linux/fuse.h>` prints what the compiler makes of it.
//!
//! The installed header may be older than the protocol described here. What it lacks is held
//! against stated figures, so nothing goes unchecked whatever the header's age.
#![allow(clippy::panic)] // helpers of tests fail by panic

#[path = "layout/structures.rs"]
mod structures;
#[path = "layout/values.rs"]
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use structures::{Row, structures};

/// Runs a command; says what to install if it cannot be started.
fn run(command: &mut Command, purpose: &str) -> Output {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{purpose}: cannot run {command:?}: {error}; install a C compiler (gcc)")
    });
    assert!(
        output.status.success(),
        "{purpose}: {command:?} failed; are the kernel headers installed (linux-libc-dev)?\n{}",
        String::from_utf8_lossy(&output.stderr),
    );
    output
}

/// Compiles and runs a program of statements, which print lines of a name and a number.
fn ask_header(program: &str, statements: &str) -> BTreeMap<String, u64> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = directory.join(format!("{program}.c"));
    let binary = directory.join(program);
    let text = format!(
        "#include <stddef.h>\n#include <stdio.h>\n#include <sys/ioctl.h>\n\
         #include <linux/fuse.h>\n\
         #define VALUE(x) (sizeof(x) == 4 ? (unsigned long long)(uint32_t)(x) \\\n\
         : (unsigned long long)(x))\n\
         int main(void) {{\n{statements}return 0;\n}}\n"
    );
    std::fs::write(&source, text).expect("write the C program");
    let mut compiler = Command::new("cc");
    run(
        compiler.arg("-o").arg(&binary).arg(&source),
        "compile against <linux/fuse.h>",
    );
    let output = run(&mut Command::new(&binary), "print the kernel's layout");
    let lines = String::from_utf8(output.stdout).expect("names and numbers");
    let parse = |line: &str| {
        let (name, number) = line.split_once(' ').expect("a name and a number");
        (name.to_owned(), number.parse().expect("a number"))
    };
    lines.lines().map(parse).collect()
}

/// The name of a field as C spells it.
fn c_field(field: &str) -> &str {
    field.trim_start_matches("r#")
}

fn structure_statements(rows: &[Row]) -> String {
    let mut text = String::new();
    for Row {
        since,
        name,
        fields,
        ..
    } in rows
    {
        writeln!(text, "#if FUSE_KERNEL_MINOR_VERSION >= {since}").expect("string");
        writeln!(text, "printf(\"{name} %zu\\n\", sizeof(struct {name}));").expect("string");
        for (field, ..) in fields {
            let field = c_field(field);
            let offset = format!("offsetof(struct {name}, {field})");
            let size = format!("sizeof(((struct {name} *)0)->{field})");
            writeln!(text, "printf(\"{name}.{field} %zu\\n\", {offset});").expect("string");
            writeln!(text, "printf(\"{name}.{field}.size %zu\\n\", {size});").expect("string");
        }
        writeln!(text, "#endif").expect("string");
    }
    text
}

#[test]
fn structures_match_the_kernel_header() {
    let rows = structures();
    let kernel = ask_header("structures", &structure_statements(&rows));
    let stated: BTreeSet<&str> = structures::STATED.iter().map(|stated| stated.0).collect();
    assert!(
        kernel.len() > 400,
        "the header answered only {} layouts",
        kernel.len()
    );
    for row in &rows {
        let Some(&size) = kernel.get(row.name) else {
            assert!(
                stated.contains(row.name),
                "{}: neither in header nor stated",
                row.name
            );
            continue;
        };
        assert_eq!(row.size as u64, size, "size of {}", row.name);
        for (field, offset, size) in &row.fields {
            let key = format!("{}.{}", row.name, c_field(field));
            assert_eq!(Some(&(*offset as u64)), kernel.get(&key), "offset of {key}");
            let key = format!("{key}.size");
            assert_eq!(Some(&(*size as u64)), kernel.get(&key), "{key}");
        }
    }
}

#[test]
fn structures_match_the_stated_layout() {
    let rows = structures();
    for &(name, size, offsets) in structures::STATED {
        let row = rows
            .iter()
            .find(|row| row.name == name)
            .expect("stated structures exist");
        assert_eq!(row.size, size, "size of {name}");
        let actual: Vec<usize> = row.fields.iter().map(|field| field.1).collect();
        assert_eq!(actual, offsets, "offsets of {name}");
    }
}

#[test]
fn structures_are_listed_once() {
    let rows = structures();
    let names: BTreeSet<&str> = rows.iter().map(|row| row.name).collect();
    assert_eq!(names.len(), rows.len());
}

#[test]
fn old_sizes_end_where_a_field_begins() {
    use bickford_abi::*;
    use std::mem::offset_of;

    assert_eq!(COMPAT_INIT_IN_SIZE, offset_of!(InitIn, flags2));
    assert_eq!(COMPAT_INIT_OUT_SIZE, offset_of!(InitOut, max_readahead));
    assert_eq!(COMPAT_22_INIT_OUT_SIZE, offset_of!(InitOut, time_gran));
    assert_eq!(
        COMPAT_ENTRY_OUT_SIZE,
        offset_of!(EntryOut, attr) + offset_of!(Attr, blksize)
    );
    assert_eq!(
        COMPAT_ATTR_OUT_SIZE,
        offset_of!(AttrOut, attr) + offset_of!(Attr, blksize)
    );
    assert_eq!(COMPAT_MKNOD_IN_SIZE, offset_of!(MknodIn, umask));
    assert_eq!(COMPAT_WRITE_IN_SIZE, offset_of!(WriteIn, lock_owner));
    assert_eq!(COMPAT_STATFS_SIZE, offset_of!(Kstatfs, frsize));
    assert_eq!(
        COMPAT_SETXATTR_IN_SIZE,
        offset_of!(SetxattrIn, setxattr_flags)
    );
}

#[test]
fn values_match_the_kernel_header() {
    let macros = values::macros();
    let enumerations = values::enumerations();
    let mut text = String::new();
    for (name, _) in &macros {
        writeln!(
            text,
            "#ifdef {name}\nprintf(\"{name} %llu\\n\", VALUE({name}));\n#endif"
        )
        .expect("string");
    }
    for (since, (name, _)) in &enumerations {
        writeln!(text, "#if FUSE_KERNEL_MINOR_VERSION >= {since}").expect("string");
        writeln!(text, "printf(\"{name} %llu\\n\", VALUE({name}));\n#endif").expect("string");
    }
    let kernel = ask_header("values", &text);
    assert!(
        kernel.len() > 120,
        "the header answered only {} values",
        kernel.len()
    );

    let stated: BTreeMap<&str, u64> = values::STATED.iter().copied().collect();
    let enumerations = enumerations.into_iter().map(|(_, value)| value);
    let ours: BTreeMap<String, u64> = macros.into_iter().chain(enumerations).collect();
    for (name, value) in &ours {
        match (kernel.get(name), stated.get(name.as_str())) {
            (None, None) => panic!("{name}: neither in the header nor stated"),
            (header, stated) => {
                assert!(
                    header.is_none_or(|header| header == value),
                    "{name}: {header:?}"
                );
                assert!(
                    stated.is_none_or(|stated| stated == value),
                    "{name}: {stated:?}"
                );
            }
        }
    }
    for name in stated.keys() {
        assert!(
            ours.contains_key(*name),
            "{name} is stated but not in the crate"
        );
    }
}
