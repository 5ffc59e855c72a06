//! Programs: a command line, the background, and the end of a mount.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::{Arc, OnceLock};

use ::bickford_program::{Invocation, Mounted, Opened, Program};
use bickford::path::Names;
use bickford::{FileSystem, path};
use bickford_stackfs::{LowerWatch, StackFs};
use clap::{Arg, ArgAction, ArgMatches};

use crate::abi::{
    BICKFORD_LOG_DEBUG, BICKFORD_LOG_ERROR, BICKFORD_LOG_INFO, BICKFORD_LOG_WARNING,
    bickford_callbacks, bickford_config, bickford_flag, bickford_invocation, bickford_program,
};
use crate::dispatch::{Callbacks, User};
use crate::guard::{Failure, guarded, message, text};
use crate::options::Options;
use crate::paths::over_paths;
use crate::session::{self, Held, Registered};

/// Room for the message of `open`.
const MESSAGE: usize = 1024;

/// Strings that C has while the program runs, and which of them are the values of each flag.
struct Kept {
    source: CString,
    mountpoint: CString,
    values: Vec<Vec<CString>>,
}

/// What C passed.
pub(crate) struct Given {
    program: *const bickford_program,
    words: Vec<OsString>,
    /// The names of the program's own flags.
    flags: Vec<String>,
    parse: Parse,
    config: *const bickford_config,
    user: User,
}

/// Knows the options that there are.
type Parse = fn(&str) -> Result<Options, Failure>;

/// The options of a program, which has threads.
fn options(parse: Parse, text: Option<String>) -> Result<Options, Failure> {
    let options = parse(&text.unwrap_or_default())?;
    match options.driven {
        true => Err(Failure::argument(
            "the option driven is for sessions within a program: leave it out, or mount with bickford_mount",
        )),
        false => Ok(options),
    }
}

/// What is served, and what goes with it.
pub(crate) struct Serving<F> {
    pub(crate) filesystem: F,
    /// Of a file system over paths.
    pub(crate) names: Option<Names>,
    /// The one whose lower directory is watched, where it is.
    pub(crate) watched: Option<Arc<StackFs>>,
}

/// Text of the program's description; `None` for NULL.
///
/// # Safety
/// `given` is null or NUL-terminated.
unsafe fn described(given: *const c_char, what: &str) -> Result<Option<String>, Failure> {
    if given.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let given = unsafe { text(given, what)? };
    let given = given.to_str();
    given
        .map(|given| Some(given.to_owned()))
        .map_err(|_| Failure::argument(format!("{what} is not UTF-8")))
}

/// # Safety
/// As for [`described`].
unsafe fn needed(given: *const c_char, what: &str) -> Result<String, Failure> {
    // SAFETY: the caller's promise.
    let given = unsafe { described(given, what)? };
    let given = given.filter(|given| !given.is_empty());
    given.ok_or_else(|| Failure::argument(format!("{what} is NULL or empty; pass a string")))
}

/// # Safety
/// `argv` is null or points to `argc` NUL-terminated strings.
unsafe fn words(argc: i32, argv: *const *mut c_char) -> Result<Vec<OsString>, Failure> {
    let count = usize::try_from(argc).unwrap_or_default();
    if argv.is_null() || count == 0 {
        return Err(Failure::argument("argv is NULL or has no program's name"));
    }
    // SAFETY: the caller's promise.
    let argv = unsafe { std::slice::from_raw_parts(argv, count) };
    let word = |word: &*mut c_char| {
        // SAFETY: as above.
        let word = unsafe { text(*word, "a word of argv")? };
        Ok(OsStr::from_bytes(word.to_bytes()).to_owned())
    };
    argv.iter().map(word).collect()
}

/// The name of a flag, and its letter where it has one.
fn named(name: String) -> Result<(String, Option<char>), Failure> {
    let Some((long, letter)) = name.split_once('|') else {
        return Ok((name, None));
    };
    let mut letters = letter.chars();
    match (letters.next(), letters.next()) {
        (Some(letter), None) if letter.is_ascii_alphanumeric() => {
            Ok((long.to_owned(), Some(letter)))
        }
        _ => Err(Failure::argument(format!(
            "the name of a flag, '{name}': after '|' a single letter or digit has to stand"
        ))),
    }
}

/// # Safety
/// The program's flags are as many as it says, with strings as for [`described`].
unsafe fn flags(program: &bickford_program) -> Result<Vec<Arg>, Failure> {
    if program.flags.is_null() {
        return Ok(Vec::new());
    }
    let count = usize::try_from(program.flag_count).unwrap_or_default();
    // SAFETY: the caller's promise.
    let flags = unsafe { std::slice::from_raw_parts(program.flags, count) };
    let flag = |flag: &bickford_flag| {
        // SAFETY: as above.
        let (name, value, initial, help) = unsafe {
            (
                needed(flag.name, "the name of a flag")?,
                described(flag.value, "the value of a flag")?,
                described(flag.initial, "the initial value of a flag")?,
                described(flag.help, "the help of a flag")?,
            )
        };
        let (name, letter) = named(name)?;
        let arg = Arg::new(name.clone()).long(name).short(letter);
        let arg = match value {
            Some(value) => arg
                .value_name(value)
                .value_parser(clap::value_parser!(OsString))
                .action(ArgAction::Append),
            None => arg.action(ArgAction::SetTrue),
        };
        let arg = match initial {
            Some(initial) => arg.default_value(initial),
            None => arg,
        };
        Ok(arg.help(help.unwrap_or_default()))
    };
    flags.iter().map(flag).collect()
}

impl Given {
    /// Reads the arguments, and makes the program of them. What it has to serve with is read once it was opened.
    ///
    /// # Safety
    /// As for [`bickford_program_run`].
    pub(crate) unsafe fn read(
        (argc, argv): (i32, *const *mut c_char),
        program: *const bickford_program,
        config: *const bickford_config,
        user: User,
        parse: Parse,
    ) -> Result<(Self, Program), Failure> {
        // SAFETY: the caller's promises.
        let described_as = unsafe { program.as_ref() };
        let described_as = *described_as.ok_or_else(|| Failure::argument("program is NULL"))?;
        session::check_version(described_as.abi_version)?;
        // SAFETY: the caller's promises.
        let (words, name, version, about, source, text, flags) = unsafe {
            (
                words(argc, argv)?,
                needed(described_as.name, "the name of the program")?,
                described(described_as.version, "the version of the program")?,
                described(described_as.about, "what the program is about")?,
                described(described_as.source, "the source of the program")?,
                described(described_as.options, "options")?,
                flags(&described_as)?,
            )
        };
        let options = options(parse, text)?;
        let names = flags.iter().map(|flag| flag.get_id().to_string()).collect();
        let made = Program::new(&name)
            .about(about.unwrap_or_default())
            .version(version.unwrap_or_default())
            .mount_options(options.mount)
            .log_modules(&[TARGET]);
        let made = flags.into_iter().fold(made, Program::flag);
        let made = match options.foreground_only {
            true => made.foreground_only(),
            false => made,
        };
        let made = match source {
            Some(shown) if described_as.source_is_path != 0 => made.source_path(shown),
            Some(shown) => made.source_name(shown),
            None => made,
        };
        let given = Self {
            program,
            words,
            flags: names,
            parse,
            config,
            user,
        };
        Ok((given, made))
    }

    /// Whether a path has to stand before the mount point.
    pub(crate) fn has_source(&self) -> bool {
        let program = self.program();
        program.source_is_path != 0 && !program.source.is_null()
    }

    /// As C passed it; `open` may have filled it in.
    fn program(&self) -> bickford_program {
        // SAFETY: it was read before, and stays until the program has ended.
        unsafe { self.program.read() }
    }

    /// The options and the configuration, once it is open.
    pub(crate) fn filled_in(&self) -> Result<(Options, bickford_config), Failure> {
        // SAFETY: the promises of who called `read`.
        let (text, config) = unsafe {
            (
                described(self.program().options, "options")?,
                session::config(self.config)?,
            )
        };
        Ok((options(self.parse, text)?, config))
    }

    /// Opens what is served, as the command line asks, and has C told of the session.
    fn open<A>(&self, given: &mut Invocation<A>) -> Opened<()> {
        let Some(open) = self.program().open else {
            return Ok(());
        };
        let kept = Kept::new(given, &self.flags)?;
        let pointers = |values: &Vec<CString>| {
            let pointers = values.iter().map(|value| value.as_ptr());
            pointers.chain([std::ptr::null()]).collect::<Vec<_>>()
        };
        let ended = kept.values.iter().map(pointers).collect::<Vec<_>>();
        let all_values = ended.iter().map(|all| all.as_ptr()).collect::<Vec<_>>();
        let last = |values: &Vec<CString>| values.last().map_or(std::ptr::null(), |it| it.as_ptr());
        let values = kept.values.iter().map(last).collect::<Vec<_>>();
        let invocation = bickford_invocation {
            source: kept.source.as_ptr(),
            mountpoint: kept.mountpoint.as_ptr(),
            values: values.as_ptr(),
            value_count: values.len() as u64,
            all_values: all_values.as_ptr(),
        };
        let mut room = [0 as c_char; MESSAGE];
        // SAFETY: the function was passed with this signature; its arguments live during the call.
        let code = unsafe {
            open(
                self.user.0,
                &raw const invocation,
                room.as_mut_ptr(),
                room.len() as u64,
            )
        };
        given.keep(kept);
        if code == 0 {
            return Ok(());
        }
        // It may have filled all of it.
        let bytes = room.map(|byte| byte as u8);
        let told = CStr::from_bytes_until_nul(&bytes).map_or(&bytes[..], CStr::to_bytes);
        Err(match (told.is_empty(), code) {
            (false, _) => String::from_utf8_lossy(told).into_owned().into(),
            (true, 1..) => io::Error::from_raw_os_error(code).into(),
            (true, _) => format!("it could not be opened ({code})").into(),
        })
    }

    /// What serves the requests, and the options, once it is open.
    ///
    /// # Safety
    /// `callbacks` is null or points to callbacks.
    unsafe fn callbacks<A>(
        &self,
        callbacks: *const bickford_callbacks,
        invocation: &mut Invocation<A>,
    ) -> Result<(Callbacks, Options), Failure> {
        let (options, config) = self.filled_in()?;
        let config = options.adjusted(config);
        // SAFETY: the caller's promise.
        let callbacks = unsafe { session::callbacks(callbacks, config, &options) }?;
        serve_with(invocation, &options, &config);
        Ok((callbacks, options))
    }

    pub(crate) fn run<A: clap::Args, F: FileSystem>(
        self,
        made: Program<A>,
        serve: impl FnOnce(&Self, &mut Invocation<A>) -> Result<Serving<F>, Failure>,
    ) -> i32 {
        let words = self.words.clone();
        let status = made.run_as(words, |given| {
            self.open(given)?;
            let serving = serve(&self, given).map_err(|failure| failure.to_string())?;
            let Serving {
                filesystem,
                names,
                watched,
            } = serving;
            let (begun, user) = (self.program().begun, self.user);
            // The registration goes with the mount.
            let session = Arc::<OnceLock<Registered>>::default();
            given.keep(Arc::clone(&session));
            given.when_mounted(move |mounted| {
                let watch = match watched {
                    Some(stackfs) => watch(&stackfs, mounted)?,
                    None => None,
                };
                let registered = register(mounted, names, watch)?;
                let number = registered.number();
                let _ = session.set(registered);
                if let Some(begun) = begun {
                    let user = user;
                    // SAFETY: the function was passed with this signature.
                    unsafe { begun(user.0, number) };
                }
                Ok(())
            });
            Ok(filesystem)
        });
        i32::from(status.0)
    }
}

/// Has it served as the options and the configuration say.
pub(crate) fn serve_with<A>(
    invocation: &mut Invocation<A>,
    options: &Options,
    config: &bickford_config,
) {
    invocation.session_config = options.session(config);
    // A preset with one thread binds nobody.
    invocation.single_threaded = config.workers == 1;
}

fn watch(stackfs: &StackFs, mounted: &Mounted) -> io::Result<Option<LowerWatch>> {
    let shown = Arc::clone(&mounted.shown);
    stackfs.watch_lower_shown(mounted.session.server(), move |name| shown(name))
}

fn register(
    mounted: &Mounted,
    names: Option<Names>,
    watch: Option<LowerWatch>,
) -> Opened<Registered> {
    let held = Held::begin(Arc::clone(&mounted.session), names, watch, None);
    let held = held.map_err(|error| error.to_string())?;
    Ok(held.register())
}

impl Kept {
    fn new<A>(given: &Invocation<A>, flags: &[String]) -> Opened<Self> {
        let text = |text: &OsStr| CString::new(text.to_owned().into_vec());
        let texts = |flag: &String| values(given.matches(), flag).map(text).collect();
        Ok(Self {
            source: text(&given.source)?,
            mountpoint: text(given.mountpoint.as_os_str())?,
            values: flags.iter().map(texts).collect::<Result<_, _>>()?,
        })
    }
}

/// The values of a flag; that of one without is empty.
fn values<'m>(matches: &'m ArgMatches, flag: &str) -> impl Iterator<Item = &'m OsStr> {
    let is_given = matches.try_get_one::<bool>(flag);
    let (texts, given) = match is_given {
        Ok(given) => (None, given.copied().unwrap_or_default()),
        Err(_) => (matches.get_many::<OsString>(flag), false),
    };
    let texts = texts.into_iter().flatten().map(OsString::as_os_str);
    texts.chain(given.then_some(OsStr::new("")))
}

/// A status for `main`: what is wrong with the program itself is said like what is wrong with its command line.
pub(crate) fn status(entry: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    match guarded(entry) {
        status @ 0.. => status,
        _ => {
            let _ = writeln!(io::stderr(), "bickford: {}", message());
            1
        }
    }
}

/// # Safety
/// `callbacks` is null or points to callbacks.
unsafe fn user(callbacks: *const bickford_callbacks) -> Result<User, Failure> {
    // SAFETY: the caller's promise.
    let callbacks = unsafe { callbacks.as_ref() };
    let callbacks = callbacks.ok_or_else(|| Failure::argument("callbacks are NULL"))?;
    Ok(User(callbacks.user))
}

/// What `main` of a program does: reads the command line, mounts a file system that callbacks serve, goes into the background,
/// logs, and unmounts when a signal comes. Returns the status for `main`: zero when the mount answers, or with `-f` when it has
/// ended. `--help` shows the command line, which is that of mount.fuse3(8) with more; mount(8) and
/// fstab(5) can mount it, where it is found in PATH under its name.
///
/// The background is the program itself run again, and so is what unmounts when a signal comes: what stands in `main` before this
/// happens in each of these processes, and so does what stands after it, in the one that was called when the mount answers: what is
/// to be done at the end of the mount belongs into `BICKFORD_OP_DESTROY`.
///
/// What is served is opened by `open` in the process that serves. Once the mount answers, the current directory is `/` there: `open`
/// makes absolute what is used later of relative paths. It may fill in what is read when it has returned: `config`, `callbacks`, and
/// of the program's `options` what is no option of mount.fuse3(8). (`open` and `begun` get the `user` that is there before.)
///
/// To be called once, and without `bickford_log`: the log goes where the command line says, and `bickford_log_line` writes to it.
/// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXFSZ are the library's, but for SIGHUP and SIGUSR1 where the program has a handler by the
/// time that `open` has returned; SIGPIPE no longer ends the process, and a handler that the program has for it stays.
///
/// # Safety
/// `argv` has `argc` NUL-terminated strings; `program` is one, with its strings NUL-terminated and as many flags as it says, and its
/// functions can be called with the `user` of the callbacks; `config` and `callbacks` are as for `bickford_mount`. All stays until this
/// returns, but for what `open` fills in.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_program_run(
    argc: i32,
    argv: *const *mut c_char,
    program: *const bickford_program,
    config: *const bickford_config,
    callbacks: *const bickford_callbacks,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promises.
        let (given, made) = unsafe {
            let user = user(callbacks)?;
            Given::read((argc, argv), program, config, user, Options::parse)?
        };
        Ok(given.run(made, |given, invocation| {
            // SAFETY: as above.
            let (filesystem, _) = unsafe { given.callbacks(callbacks, invocation) }?;
            Ok(Serving {
                filesystem,
                names: None,
                watched: None,
            })
        }))
    })
}

/// The same for a file system over paths (`bickford_mount_paths`). `-o` has the options of fuse(8) as well.
///
/// # Safety
/// As for `bickford_program_run`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_program_run_paths(
    argc: i32,
    argv: *const *mut c_char,
    program: *const bickford_program,
    config: *const bickford_config,
    callbacks: *const bickford_callbacks,
) -> i32 {
    status(|| {
        // SAFETY: the caller's promises.
        let (given, made) = unsafe {
            let user = user(callbacks)?;
            Given::read((argc, argv), program, config, user, Options::for_paths)?
        };
        let made = made.path_options(path::Options::default());
        Ok(given.run(made, |given, invocation| {
            // SAFETY: as above.
            let (callbacks, options) = unsafe { given.callbacks(callbacks, invocation) }?;
            let settled = invocation.default_path_options(options.paths);
            settled.map_err(Failure::argument)?;
            let shown = invocation.path_options;
            let (filesystem, names) = over_paths(callbacks, shown, options.at_once);
            Ok(Serving {
                filesystem,
                names: Some(names),
                watched: None,
            })
        }))
    })
}

/// As `--log` names what a program itself writes.
const TARGET: &str = "program";

/// Writes a line to the log of a program (`bickford_program_run`), or to who listens to the library's (`bickford_log`): `level` is one of
/// `BICKFORD_LOG_*`. In the background nobody sees what is written to standard error. `--log program=debug` names these lines.
///
/// # Safety
/// `text` is NUL-terminated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bickford_log_line(level: u32, text: *const c_char) -> i32 {
    guarded(|| {
        // SAFETY: the caller's promise.
        let text = unsafe { self::text(text, "text")? };
        let text = text.to_string_lossy();
        match level {
            BICKFORD_LOG_ERROR => tracing::error!(target: TARGET, "{text}"),
            BICKFORD_LOG_WARNING => tracing::warn!(target: TARGET, "{text}"),
            BICKFORD_LOG_INFO => tracing::info!(target: TARGET, "{text}"),
            BICKFORD_LOG_DEBUG => tracing::debug!(target: TARGET, "{text}"),
            _ => return Err(Failure::argument(format!("{level} is no level of the log"))),
        }
        Ok(0)
    })
}
