use std::collections::BTreeMap;

use super::*;

fn read(text: &str) -> Result<Workload, WmlError> {
    parse(text, &BTreeMap::new())
}

const GOOD: &str = r#"
# A comment.
set $dir=/tmp
set $files=10
set mode quit firstdone
define fileset name=set1,path=$dir,size=16k,entries=$files,dirwidth=4,prealloc=80
define file name=log, path=$dir, size=0, prealloc
define process name=p,instances=2
{
  thread name=t,memsize=10m,instances=3
  {
    flowop createfile name=c,filesetname=set1,fd=1
    flowop writewholefile name=w,fd=1,iosize=1m
    flowop appendfilerand name=a,filesetname=log,iosize=8k,fd=2
    flowop closefile name=x,fd=1
    flowop finishoncount name=f,value=100
  }
}
echo "hello"
run 60
"#;

#[test]
fn reads_what_the_subset_has() {
    let w = read(GOOD).unwrap();
    assert!(w.quit_first_done);
    assert_eq!(w.filesets[0].size, 16 << 10);
    assert_eq!(
        (
            w.filesets[0].entries,
            w.filesets[0].dirwidth,
            w.filesets[0].prealloc_pct
        ),
        (10, 4, 80)
    );
    assert_eq!(
        (w.filesets[1].entries, w.filesets[1].prealloc_pct),
        (1, 100)
    );
    assert_eq!(
        (
            w.processes[0].instances,
            w.processes[0].threads[0].instances
        ),
        (2, 3)
    );
    let ops = &w.processes[0].threads[0].flowops;
    assert_eq!(
        ops[1].op,
        Op::WriteWholeFile {
            fd: 1,
            iosize: 1 << 20
        }
    );
    assert_eq!(
        ops[2].op,
        Op::Append {
            fd: 2,
            iosize: 8192,
            fileset: Some(1),
            random: true
        }
    );
    assert_eq!(ops[4].op, Op::FinishOnCount { value: 100 });
    assert_eq!(w.notes.len(), 1, "memsize is noted");
}

#[test]
fn given_variables_win_over_the_file() {
    let given = BTreeMap::from([("files".to_owned(), "77".to_owned())]);
    assert_eq!(parse(GOOD, &given).unwrap().filesets[0].entries, 77);
}

#[test]
fn scaling_keeps_sizes_and_widths() {
    let mut w = read(&GOOD.replace("files=10", "files=4000")).unwrap();
    w.scale(0.1);
    assert_eq!(
        (
            w.filesets[0].entries,
            w.filesets[0].size,
            w.filesets[0].dirwidth
        ),
        (400, 16384, 4)
    );
    assert_eq!(w.filesets[1].entries, 1, "a single file stays one");
    w.scale(100.0);
    assert_eq!((w.filesets[0].entries, w.filesets[1].entries), (40_000, 1));
}

#[test]
fn every_shipped_workload_is_read() {
    for (name, text) in crate::rows::WORKLOADS {
        if let Err(error) = read(text) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn the_seconds_of_run_end_only_what_nothing_else_ends() {
    let of = |flowops: &str, mode: &str, run: &str| {
        read(&format!(
            "set mode quit {mode}\n\
             define fileset name=s,path=/t,size=4k,entries=10,prealloc\n\
             define process name=p {{\n\
             thread name=t {{ {flowops} }}\n\
             thread name=u {{ flowop deletefile name=d,filesetname=s }}\n\
             }}\n{run}"
        ))
    };
    let stat = "flowop statfile name=f,filesetname=s";
    assert_eq!(of(stat, "alldone", "run 3").unwrap().seconds, Some(3));
    assert_eq!(of(stat, "timeout", "run 3").unwrap().seconds, Some(3));
    assert_eq!(of(stat, "firstdone", "run 3").unwrap().seconds, None);
    let counted = format!("{stat} flowop finishoncount name=c,value=9");
    assert_eq!(of(&counted, "alldone", "run 3").unwrap().seconds, None);
    let error = of(stat, "alldone", "run").unwrap_err();
    assert_eq!((error.position.line, error.position.column), (4, 1));
    assert!(error.expected.contains("`run SECONDS`"), "{error}");
    let both = format!(
        "{stat} flowop createfile name=c,filesetname=s flowop deletefile name=x,filesetname=s"
    );
    assert!(of(&both, "alldone", "").is_err());
    assert!(of(stat, "alldone", "run 999999999").is_err());
}

/// (text, line, column, part of what was expected, part of what was found)
const BAD: &[(&str, usize, usize, &str, &str)] = &[
    ("defin fileset name=a", 1, 1, "`set`, `define`", "`defin`"),
    ("set dir=/tmp", 1, 5, "`$variable`", "`dir`"),
    ("set $dir /tmp", 1, 10, "`=`", "`/tmp`"),
    ("set $dir=", 1, 10, "a value", "the end of the file"),
    ("set $=1", 1, 6, "a variable's name", "none"),
    (
        "set mode quit never",
        1,
        15,
        "`alldone`, `firstdone` or `timeout`",
        "`never`",
    ),
    ("echo \"open", 1, 6, "ends with", "no end quote"),
    (
        "set $a=cvar(type=cvar-gamma)",
        1,
        12,
        "random variables are not part",
        "`(`",
    ),
    (
        "define files name=a",
        1,
        8,
        "`fileset`, `file` or `process`",
        "`files`",
    ),
    (
        "define fileset name=a,entries=1,color=red",
        1,
        33,
        "an attribute of `fileset`",
        "`color`",
    ),
    (
        "define fileset name=a,entries=1,entries=2",
        1,
        33,
        "each attribute once",
        "`entries` again",
    ),
    (
        "define fileset entries=1",
        1,
        8,
        "attribute `name` of `fileset`",
        "none",
    ),
    ("define fileset name=a", 1, 8, "attribute `entries`", "none"),
    (
        "define fileset name=a,entries=4q",
        1,
        31,
        "a number",
        "`4q`",
    ),
    (
        "define fileset name=a,entries=1,prealloc=101",
        1,
        42,
        "a number up to 100",
        "`101`",
    ),
    (
        "define fileset name=a,entries=1,size",
        1,
        33,
        "`size=value`",
        "no value",
    ),
    (
        "define fileset name=a,entries=$n",
        1,
        31,
        "a variable that was `set`",
        "`$n`",
    ),
    (
        "define fileset name=../a,entries=1",
        1,
        21,
        "can be a directory's",
        "`../a`",
    ),
    (
        "define fileset name=a,entries=1,dirgamma=1500",
        1,
        42,
        "`dirgamma=0`",
        "`1500`",
    ),
    (
        "define fileset name=a,entries=1\ndefine file name=a",
        2,
        8,
        "a name of its own",
        "`a` again",
    ),
    ("define process name=p", 1, 22, "`{`", "the end of the file"),
    (
        "define process name=p { }",
        1,
        8,
        "at least one `thread`",
        "none",
    ),
    (
        "define process name=p {\n  thrd name=t }",
        2,
        3,
        "`thread` or `}`",
        "`thrd`",
    ),
    (
        "define process name=p {\n thread name=t {\n  op x\n }\n}",
        3,
        3,
        "`flowop` or `}`",
        "`op`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop read name=r\n }\n}",
        3,
        10,
        "a flowop of the subset",
        "`read`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop fsync name=r,iosize=1\n }\n}",
        3,
        23,
        "an attribute of `fsync`",
        "`iosize`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop openfile name=r,filesetname=z\n }\n}",
        3,
        38,
        "the name of a defined set",
        "`z`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop closefile name=r,fd=99\n }\n}",
        3,
        30,
        "a number up to 63",
        "`99`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop closefile name=r,fd=1,iters=0\n }\n}",
        3,
        38,
        "a number from 1 up to",
        "`0`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop finishoncount name=r,value=1\n }\n}",
        2,
        2,
        "that does something",
        "none",
    ),
    (
        "define process name=p {\n thread name=t,instances=0 {\n  flowop closefile name=r,fd=1\n }\n}",
        2,
        26,
        "a number from 1 up to",
        "`0`",
    ),
    (
        "define process name=p {\n thread name=t {\n  flowop closefile name=r\n  flowop finishoncount name=c,value=0\n }\n}",
        4,
        37,
        "a number from 1 up to",
        "`0`",
    ),
    (
        "define process name=p,instances=100 {\n thread name=t,instances=41 {\n  flowop closefile name=r,fd=1\n }\n}",
        1,
        8,
        "at most 4096 threads in all",
        "4100",
    ),
    ("define file name=a", 1, 1, "a `define process`", "none"),
    ("", 1, 1, "a `define process`", "none"),
    ("eventgen rate=10", 1, 1, "`set`, `define`", "`eventgen`"),
    ("set $a=1\n  ?", 2, 3, "a word", "`?`"),
];

#[test]
fn bad_files_tell_line_column_and_what_was_expected() {
    for (text, line, column, expected, found) in BAD {
        let error = read(text).expect_err(text);
        assert_eq!(
            (error.position.line, error.position.column),
            (*line, *column),
            "{text}: {error}"
        );
        assert!(error.expected.contains(expected), "{text}: {error}");
        assert!(error.found.contains(found), "{text}: {error}");
    }
}

/// Threads that could never find a file would end before they did anything.
#[test]
fn sets_without_files_to_take_are_refused() {
    let of = |prealloc: &str, flowops: &[&str]| {
        let one = |op: &&str| match op.strip_prefix("append") {
            Some(_) => "flowop appendfile name=a,filesetname=s,iosize=1k\n".to_owned(),
            None => format!("flowop {op} name=a,filesetname=s\n"),
        };
        let flowops: String = flowops.iter().map(one).collect();
        read(&format!(
            "define fileset name=s,path=/t,entries=10{prealloc}\ndefine process name=p {{ thread name=t {{\n\
             {flowops}flowop finishoncount name=f,value=9 }} }}"
        ))
    };
    for op in ["openfile", "statfile", "deletefile", "append"] {
        let error = of("", &[op]).unwrap_err();
        assert_eq!((error.position.line, error.position.column), (3, 8), "{op}");
        assert!(
            error.expected.contains("`s` that exists: `prealloc`"),
            "{error}"
        );
        of(",prealloc=10", &[op]).unwrap();
        of(",prealloc=9", &[op]).unwrap_err();
        of("", &[op, "createfile"]).unwrap();
    }
    let error = of(",prealloc", &["statfile", "createfile"]).unwrap_err();
    assert_eq!((error.position.line, error.position.column), (4, 8));
    assert!(
        error
            .expected
            .contains("`s` that is missing: less `prealloc`"),
        "{error}"
    );
    of(",prealloc", &["deletefile", "createfile"]).unwrap();
    of(",prealloc=90", &["createfile"]).unwrap();
}

#[test]
fn names_that_are_not_known_are_told_the_nearest() {
    let flowop = |text: &str| {
        let set = "define fileset name=set1,entries=1\n";
        format!("{set}define process name=p {{\nthread name=t {{\n{text}\n}} }}")
    };
    let cases = [
        (
            "define fileset name=a,entrys=1".to_owned(),
            "line 1, column 23: ",
            Some("entries"),
        ),
        (
            flowop("flowop createfile name=c,filesetnam=set1"),
            "line 4, column 26: ",
            Some("filesetname"),
        ),
        (
            flowop("flowop createfile name=c,filesetname=sett1"),
            "line 4, column 38: ",
            Some("set1"),
        ),
        (
            flowop("flowop creatfile name=c"),
            "line 4, column 8: ",
            Some("createfile"),
        ),
        (
            "defin file".to_owned(),
            "line 1, column 1: ",
            Some("define"),
        ),
        (
            "set mode quit firstdon".to_owned(),
            "line 1, column 15: ",
            Some("firstdone"),
        ),
        (
            "define fileset name=a,entries=1,colour=red".to_owned(),
            "line 1, column 33: ",
            None,
        ),
    ];
    for (text, place, name) in cases {
        let error = read(&text).unwrap_err();
        assert_eq!(error.nearest.as_deref(), name, "{error}");
        let told = error.to_string();
        let hint = name.map(|name| format!("; did you mean `{name}`?"));
        assert!(told.starts_with(place), "{told}");
        assert_eq!(told.contains("did you mean"), hint.is_some(), "{told}");
        assert!(told.ends_with(&hint.unwrap_or_default()), "{told}");
    }
}

#[test]
fn no_prefix_of_a_good_file_panics() {
    for end in 0..GOOD.len() {
        let _ = read(&GOOD[..end]);
    }
}
