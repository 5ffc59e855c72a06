//! `log`: lines with paths, in both formats, complete at the end.

use std::path::Path;

use bickford::abi::Opcode;
use serde_json::Value;

use super::below::*;

fn session(spec: &str) {
    let mut fixture = fixture(&[spec]);
    let dir = fixture.node(Opcode::Mkdir, 1, &mkdir(b"dir"));
    let file = fixture.node(Opcode::Create, dir, &create(b"fi\nle"));
    fixture.call(Opcode::Read, file, &read(10));
    fixture.call(Opcode::Rename2, dir, &rename(b"fi\nle", 1, b"new", 0));
    fixture.call(Opcode::Write, file, &write(b"abc"));
    fixture.errno(Opcode::Lookup, dir, b"missing\0");
    fixture.call(Opcode::Unlink, 1, b"new\0");
    fixture.call(Opcode::Read, file, &read(1));
    fixture.kernel.call(Opcode::Destroy, 0, &[]).unwrap();
}

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.ends_with('\n'));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn json_lines_say_what_happened_where() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    session(&format!("log:format=json,file={}", path.display()));
    let lines: Vec<Value> = lines(&path)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let path = line.get("path").and_then(Value::as_str).unwrap_or("?");
            (line["op"].as_str().unwrap(), path)
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("mkdir", "/dir"),
            ("create", "/dir/fi\\x0ale"),
            ("read", "/dir/fi\\x0ale"),
            ("rename", "/dir/fi\\x0ale"),
            ("write", "/new"),
            ("lookup", "/dir/missing"),
            ("unlink", "/new"),
            ("read", "?"),
        ]
    );
    assert_eq!(
        (&lines[2]["bytes"], &lines[2]["length"]),
        (&10.into(), &10.into())
    );
    assert_eq!(
        (&lines[4]["bytes"], &lines[4]["length"]),
        (&3.into(), &3.into())
    );
    assert_eq!(lines[3]["new_path"], "/new");
    assert_eq!(lines[5]["error"], "ENOENT");
    assert_eq!(lines[1]["entry"], lines[2]["node"]);
    assert!(lines.iter().all(|line| line["us"].is_u64()));
    let time: Result<jiff::Timestamp, _> = lines[0]["time"].as_str().unwrap().parse();
    assert!(time.is_ok());
}

#[test]
fn text_lines_say_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    session(&format!("log:ops=rename|lookup,file={}", path.display()));
    let lines = lines(&path);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines[0].contains(" rename /dir/fi\\x0ale -> /new "),
        "{}",
        lines[0]
    );
    assert!(lines[0].contains(" = ok in "), "{}", lines[0]);
    assert!(
        lines[1].contains(" lookup /dir/missing = ENOENT in "),
        "{}",
        lines[1]
    );
}

#[test]
fn without_paths_nodes_and_names_are_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    session(&format!(
        "log:paths=false,ops=create,file={}",
        path.display()
    ));
    let lines = lines(&path);
    assert!(
        lines[0].contains(" create node=2 name=fi\\x0ale "),
        "{}",
        lines[0]
    );
}

#[test]
fn under_load_every_line_is_written_or_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let spec = format!("log:format=json,buffer=4,file={}", path.display());
    let mut fixture = fixture(&[&spec]);
    for _ in 0..5000 {
        fixture.call(Opcode::Read, 2, &read(1));
    }
    let report = fixture.summary.report();
    fixture.kernel.call(Opcode::Destroy, 0, &[]).unwrap();
    let lines: Vec<Value> = lines(&path)
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let written = lines.iter().filter(|line| line.get("op").is_some()).count() as u64;
    let report = report.lines().nth(1).unwrap_or("0 lines").trim().to_owned();
    let dropped: u64 = report.split(' ').next().unwrap().parse().unwrap();
    assert_eq!(written + dropped, 5000);
}
