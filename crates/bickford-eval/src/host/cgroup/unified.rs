//! Where in a hierarchy of version 2 a limited group lies, so that the caller's limits of CPU time hold in it.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::host::mounts;

/// The group of this process in the hierarchy at `root`; `None` where it lies outside of what is mounted there.
pub(super) fn own(root: &Path) -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mount = mounts::at(root)?;
    in_groups(&groups, &mount.root, root)
}

fn in_groups(groups: &str, mounted: &Path, root: &Path) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = Path::new(path).strip_prefix(mounted).ok()?;
    let outside = path.components().any(|part| part == Component::ParentDir);
    // A path that is joined to nothing ends with a slash.
    let own = root.components().chain(path.components()).collect();
    (!outside).then_some(own)
}

/// Makes the group `name` beneath `own` or, where that has processes and so cannot pass the memory controller on, beneath
/// the nearest group above it that can. What is returned besides is to be told: which of the caller's limits it does not
/// have.
///
/// # Errors
/// Why no group of the hierarchy takes it.
pub(super) fn make(
    root: &Path,
    own: Option<&Path>,
    name: &str,
) -> Result<(PathBuf, Option<String>), String> {
    let mut failed = String::new();
    let above = own.unwrap_or(root).ancestors();
    for parent in above.take_while(|group| group.starts_with(root)) {
        match beneath(parent, name) {
            Ok(group) => {
                let left = match own {
                    Some(own) => hold(&group, parent, own),
                    None => Some("this process's own group is not to be seen here".to_owned()),
                };
                let told = left.map(|why| {
                    format!(
                        "Workload and daemon are not held to what limits the CPUs and the CPU time of this process: {why}."
                    )
                });
                return Ok((group, told));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn beneath(parent: &Path, name: &str) -> Result<PathBuf, String> {
    pass_on(parent, "memory")?;
    let group = parent.join(name);
    fs::create_dir(&group).map_err(|e| format!("make cgroup {}: {e}", group.display()))?;
    Ok(group)
}

/// Has the groups beneath `parent` have a controller.
fn pass_on(parent: &Path, controller: &str) -> Result<(), String> {
    let has = |file: &str| {
        let names = fs::read_to_string(parent.join(file)).unwrap_or_default();
        names.split_whitespace().any(|name| name == controller)
    };
    if has("cgroup.subtree_control") {
        return Ok(());
    }
    if !has("cgroup.controllers") {
        let parent = parent.display();
        return Err(format!("{parent} has no {controller} controller"));
    }
    let control = parent.join("cgroup.subtree_control");
    fs::write(&control, format!("+{controller}"))
        .map_err(|e| format!("write +{controller} to {}: {e}", control.display()))
}

/// Gives `group` the limits that `own` has and `parent`, in which `group` lies, has not. What is returned is why not.
fn hold(group: &Path, parent: &Path, own: &Path) -> Option<String> {
    let left = own.ancestors().take_while(|above| *above != parent);
    let quotas = left.clone().filter_map(quota);
    let quota = quotas.min_by(|(_, a), (_, b)| a.total_cmp(b));
    let cpus = |group: &Path| fs::read_to_string(group.join("cpuset.cpus.effective")).ok();
    let cpus = left.clone().find_map(cpus).filter(|own| {
        // They are those of the nearest group that has the controller.
        parent.ancestors().find_map(cpus).as_ref() != Some(own)
    });
    let set = |controller: &str, file: &str, value: &str| {
        pass_on(parent, controller)?;
        let file = group.join(file);
        fs::write(&file, value).map_err(|e| format!("write {value} to {}: {e}", file.display()))
    };
    let quota = quota.and_then(|(value, _)| set("cpu", "cpu.max", &value).err());
    let cpus = cpus.and_then(|value| set("cpuset", "cpuset.cpus", value.trim()).err());
    let why: Vec<String> = quota.into_iter().chain(cpus).collect();
    (!why.is_empty()).then(|| why.join("; "))
}

/// A group's quota of CPU time as the kernel writes it, and the CPUs that it comes to; `None` where it has none.
fn quota(group: &Path) -> Option<(String, f64)> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (time, period) = text.trim().split_once(' ')?;
    let cpus = time.parse::<f64>().ok()? / period.parse::<f64>().ok()?;
    Some((text.trim().to_owned(), cpus))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hierarchy of groups, each with what is in its files. A `cgroup.subtree_control` that is refused is a directory.
    fn tree(groups: &[(&str, &[(&str, &str)])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (group, files) in groups {
            let group = root.path().join(group);
            fs::create_dir_all(&group).unwrap();
            for (file, text) in *files {
                match *text {
                    REFUSED => fs::create_dir(group.join(file)).unwrap(),
                    text => fs::write(group.join(file), text).unwrap(),
                }
            }
        }
        root
    }

    const REFUSED: &str = "refused";
    const CONTROL: &str = "cgroup.subtree_control";
    const ALL: (&str, &str) = ("cgroup.controllers", "cpuset cpu memory\n");

    fn text(path: PathBuf) -> String {
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    #[test]
    fn a_group_is_the_callers_where_that_may_have_some() {
        let root = tree(&[
            ("", &[ALL, (CONTROL, "")]),
            ("a", &[ALL, (CONTROL, "cpu memory")]),
        ]);
        let own = root.path().join("a");
        let (group, told) = make(root.path(), Some(&own), "g").unwrap();
        assert_eq!((group, told), (own.join("g"), None));
        assert_eq!(text(root.path().join(CONTROL)), "", "nothing is changed");
    }

    #[test]
    fn beside_the_caller_its_quota_and_its_cpus_go_along() {
        let root = tree(&[
            ("", &[ALL, ("cpuset.cpus.effective", "0-3\n")]),
            (
                "s",
                &[ALL, (CONTROL, "memory"), ("cpu.max", "900000 100000\n")],
            ),
            (
                "s/a",
                &[ALL, (CONTROL, REFUSED), ("cpu.max", "150000 100000\n")],
            ),
            (
                "s/a/b",
                &[
                    ALL,
                    (CONTROL, REFUSED),
                    ("cpu.max", "max 100000\n"),
                    ("cpuset.cpus.effective", "0-1\n"),
                ],
            ),
        ]);
        let own = root.path().join("s/a/b");
        let (group, told) = make(root.path(), Some(&own), "g").unwrap();
        assert_eq!((&group, told), (&root.path().join("s/g"), None));
        assert_eq!(text(group.join("cpu.max")), "150000 100000");
        assert_eq!(text(group.join("cpuset.cpus")), "0-1");
    }

    #[test]
    fn limits_that_are_left_behind_are_told() {
        let memory = ("cgroup.controllers", "memory\n");
        let root = tree(&[
            ("", &[memory]),
            (
                "a",
                &[ALL, (CONTROL, REFUSED), ("cpu.max", "50000 100000\n")],
            ),
            ("b", &[ALL, (CONTROL, REFUSED), ("cpu.max", "max 100000\n")]),
        ]);
        let make = |own: Option<&str>, name| {
            let own = own.map(|own| root.path().join(own));
            let (group, told) = make(root.path(), own.as_deref(), name).unwrap();
            assert_eq!(group, root.path().join(name));
            told
        };
        let told = make(Some("a"), "g").unwrap();
        assert!(told.contains("has no cpu controller"), "{told}");
        assert_eq!(make(Some("b"), "h"), None);
        assert!(make(None, "i").unwrap().contains("not to be seen"));
    }

    #[test]
    fn without_a_memory_controller_there_is_no_group() {
        let root = tree(&[("", &[]), ("a", &[])]);
        let error = make(root.path(), Some(&root.path().join("a")), "g").unwrap_err();
        assert_eq!(
            error,
            format!("{} has no memory controller", root.path().display())
        );
    }

    #[test]
    fn the_callers_group_is_found_where_a_part_of_the_hierarchy_is_mounted() {
        let groups = "4:memory:/x\n0::/pods/a/b\n";
        let of = |mounted: &str| in_groups(groups, Path::new(mounted), Path::new("/cg"));
        assert_eq!(of("/"), Some("/cg/pods/a/b".into()));
        assert_eq!(of("/pods/a/b"), Some("/cg".into()));
        assert_eq!(of("/other"), None);
        let above = in_groups("0::/../a\n", Path::new("/"), Path::new("/cg"));
        assert_eq!(above, None);
        assert_eq!(
            in_groups("4:memory:/x\n", Path::new("/"), Path::new("/cg")),
            None
        );
    }
}
