//! Leases that other processes have on files, and who waits for them.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use bickford::abi::Opcode;

use super::Mount;

/// Takes leases (`F_SETLEASE`) of its first argument on the others and keeps them while its input is open.
const HOLD: &str = r#"
    $SIG{IO} = "IGNORE";
    $kind = shift;
    for $path (@ARGV) {
        open($files{$path}, $kind ? "+<" : "<", $path) or die "$path: $!";
        # The test may have a child that is about to call execve(2), and has it open, too.
        until (fcntl($files{$path}, 1024, $kind + 0)) {
            $!{EAGAIN} or die "lease of $path: $!";
            select(undef, undef, undef, 0.01);
        }
    }
    $| = 1;
    print "held\n";
    <STDIN>;
"#;

/// `F_RDLCK` and `F_WRLCK`.
pub(crate) const FOR_READING: &str = "0";
pub(crate) const FOR_WRITING: &str = "1";

pub(crate) fn perl(script: &str, paths: &[PathBuf]) -> Command {
    let mut command = Command::new("perl");
    command.args(["-e", script]).args(paths);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

/// A process that is ended with the test.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        Self(command.spawn().unwrap())
    }

    /// Has leases of this kind on files.
    pub(crate) fn holding(kind: &str, files: impl IntoIterator<Item = PathBuf>) -> Self {
        let kind = [PathBuf::from(kind)];
        let arguments: Vec<_> = kind.into_iter().chain(files).collect();
        let mut holder = Self::new(perl(HOLD, &arguments));
        assert_eq!(holder.output(), "held\n");
        holder
    }

    pub(crate) fn output(&mut self) -> String {
        let mut line = String::new();
        let mut output = BufReader::new(self.0.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        line
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How many requests of a kind are in flight.
pub(crate) fn waiting(mount: &Mount, opcode: Opcode) -> usize {
    let in_flight = mount.session.server().in_flight().list();
    in_flight
        .iter()
        .filter(|request| request.opcode == opcode)
        .count()
}
