//! SAC'10's JavaFuse as configurations, where the Java binding is built.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::process::quoted;
use crate::host::utf8;
use crate::target::Config;

/// The configurations with what calls see of data, as `javafuse --data` has it.
pub(crate) const CONFIGS: [(&str, &str); 3] = [
    ("JavaFuse1", "none"),
    ("JavaFuse2", "copied"),
    ("JavaFuse-shared", "shared"),
];

/// A directory with the Java binding, as `bindings/java` once it is built.
const VARIABLE: &str = "BICKFORD_JAVA";
/// A file system whose calls do nothing, among the binding's tests.
const CLASS: &str = "io.github.bickfordfs.examples.NullFs";

/// The built Java binding.
#[derive(Debug)]
pub(crate) struct Binding {
    launcher: PathBuf,
    classes: PathBuf,
}

impl Binding {
    /// The one that `BICKFORD_JAVA` names, or that lies beside the program `bickford`.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub(crate) fn find(bickford: &Path) -> Result<Self, String> {
        if let Some(directory) = std::env::var_os(VARIABLE) {
            return Self::at(Path::new(&directory)).map_err(|e| format!("{VARIABLE}: {e}"));
        }
        let program = fs::canonicalize(bickford).unwrap_or_else(|_| bickford.to_owned());
        let beside = program
            .ancestors()
            .map(|above| above.join("bindings/java"))
            .find(|directory| directory.join("bin/javafuse").is_file());
        match beside {
            Some(directory) => Self::at(&directory),
            None => Err(format!(
                "there is no bindings/java beside {}; {VARIABLE} can name it",
                program.display()
            )),
        }
    }

    fn at(directory: &Path) -> Result<Self, String> {
        let directory =
            fs::canonicalize(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
        let found = Self {
            launcher: directory.join("bin/javafuse"),
            classes: directory.join("target/test-classes"),
        };
        let class = found.classes.join(CLASS.replace('.', "/") + ".class");
        if !class.is_file() {
            return Err(format!(
                "the Java binding in {} is not built; scripts/eval-java.sh builds it",
                directory.display()
            ));
        }
        // Looks for the jar and for Java as well.
        let said = std::process::Command::new(&found.launcher)
            .arg("--help")
            .output()
            .map_err(|e| format!("{}: {e}", found.launcher.display()))?;
        if said.status.success() {
            return Ok(found);
        }
        let reason = String::from_utf8_lossy(&said.stderr);
        Err(crate::host::process::tail(&reason))
    }

    /// The configuration called `name`, whatever its case; `None` where it is none of ours.
    ///
    /// # Errors
    /// A path is not UTF-8.
    pub(crate) fn config(&self, name: &str) -> Result<Option<Config>, String> {
        let Some((name, data)) = CONFIGS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)) else {
            return Ok(None);
        };
        let (launcher, classes) = (quoted(utf8(&self.launcher)?), quoted(utf8(&self.classes)?));
        Ok(Some(Config {
            name: (*name).to_owned(),
            command: Some(format!(
                "exec {launcher} -f --class {CLASS} --classpath {classes} --data {data} -o preset=opt {{src}} {{mnt}}"
            )),
            directory: None,
        }))
    }
}

/// True for the name of one of the configurations.
pub(crate) fn is_one(name: &str) -> bool {
    CONFIGS.iter().any(|(n, _)| n.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn built(directory: &Path, launcher: &str) {
        let class = directory.join(format!(
            "target/test-classes/{}.class",
            CLASS.replace('.', "/")
        ));
        fs::create_dir_all(class.parent().unwrap()).unwrap();
        fs::write(class, "").unwrap();
        fs::create_dir_all(directory.join("bin")).unwrap();
        let program = directory.join("bin/javafuse");
        fs::write(&program, launcher).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_binding_beside_the_program_gives_three_configurations() {
        let root = tempfile::tempdir().unwrap();
        let bickford = root.path().join("target/release/bickford");
        fs::create_dir_all(bickford.parent().unwrap()).unwrap();
        fs::write(&bickford, "").unwrap();
        built(&root.path().join("bindings/java"), "#!/bin/sh\nexit 0\n");
        let binding = Binding::find(&bickford).unwrap();
        for (name, data) in CONFIGS {
            let config = binding.config(&name.to_lowercase()).unwrap().unwrap();
            assert_eq!(config.name, name);
            assert!(
                config
                    .command
                    .is_some_and(|c| c.contains(&format!("--data {data}")))
            );
        }
        assert_eq!(binding.config("fast").unwrap(), None);
    }

    #[test]
    fn what_is_missing_is_told() {
        let root = tempfile::tempdir().unwrap();
        let error = Binding::find(&root.path().join("bickford")).unwrap_err();
        assert!(
            error.contains("no bindings/java") || error.contains("not built"),
            "{error}"
        );
        let directory = root.path().join("java");
        fs::create_dir(&directory).unwrap();
        assert!(
            Binding::at(&directory)
                .unwrap_err()
                .contains("eval-java.sh builds it")
        );
        built(&directory, "#!/bin/sh\necho no Java here >&2\nexit 1\n");
        assert_eq!(Binding::at(&directory).unwrap_err(), "no Java here");
    }
}
