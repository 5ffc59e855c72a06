//! Layers by name.

use std::ffi::{CStr, CString};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bickford::FileSystem;
use bickford::layer::{Layer, Layered, Needs, Switches, nearest};

use crate::crypt::NewKeyFile;
use crate::files::read_text;
use crate::spec::{LayerSpec, Options};
use crate::{LayerError, crypt, delay, fault, log, readonly, stats, throttle};

/// Bytes of the longest file of switches.
const SWITCHES_MAX: u64 = 1 << 20;

/// Says what a layer has seen so far.
pub trait Reporter: Send + Sync {
    /// Some lines of text; empty when there is nothing to say.
    fn report(&self) -> String;
}

/// How a name below a layer is shown above it; `None` where it is not shown.
pub type Shown = Arc<dyn Fn(&CStr) -> Option<CString> + Send + Sync>;

/// A file system with a layer over it.
pub struct Built {
    /// The file system.
    pub file_system: Box<dyn FileSystem>,
    /// What the layer needs.
    pub needs: Needs,
    /// What the layer says of itself: its settings.
    pub about: String,
    /// What it has seen, for a layer that can tell.
    pub reporter: Option<Arc<dyn Reporter>>,
    /// How names below are shown, for a layer that shows them otherwise.
    pub shown: Option<Shown>,
    /// The key file that was made for it.
    pub made: Option<NewKeyFile>,
}

impl fmt::Debug for Built {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Built")
            .field("about", &self.about)
            .field("needs", &self.needs)
            .finish_non_exhaustive()
    }
}

/// Makes a layer over a file system; takes every option that it knows.
pub type Constructor = fn(&mut Options<'_>, Box<dyn FileSystem>) -> Result<Built, LayerError>;

/// A layer that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// Its options, each with its meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// How it is made.
    pub constructor: Constructor,
}

/// The layers that can be asked for by name.
#[derive(Clone, Debug)]
pub struct Registry {
    entries: Vec<Entry>,
}

impl Default for Registry {
    /// The layers of this crate.
    fn default() -> Self {
        Self {
            entries: vec![
                log::ENTRY,
                readonly::ENTRY,
                stats::ENTRY,
                fault::ENTRY,
                delay::ENTRY,
                throttle::ENTRY,
                crypt::ENTRY,
            ],
        }
    }
}

impl Registry {
    /// Adds a layer, in place of one of the same name.
    pub fn add(&mut self, entry: Entry) {
        self.entries.retain(|other| other.name != entry.name);
        self.entries.push(entry);
    }

    /// What can be asked for.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The layers with their options, for a help text.
    #[must_use]
    pub fn help(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            text.push_str(&format!("{:<10}{}\n", entry.name, entry.about));
            for (option, meaning) in entry.options {
                text.push_str(&format!("    {option:<24}{meaning}\n"));
            }
        }
        let except = crypt::ENTRY.name;
        text.push_str(&format!("each of them but {except}\n"));
        let meaning = "TOML that turns pre-calls, calls and post-calls on and off";
        text.push_str(&format!("    {:<24}{meaning}\n", "switches=FILE"));
        text
    }

    fn find(&self, spec: &LayerSpec) -> Result<&Entry, LayerError> {
        let found = self.entries.iter().find(|entry| entry.name == spec.name());
        found.ok_or_else(|| {
            let names: Vec<_> = self.entries.iter().map(|entry| entry.name).collect();
            let hint = match nearest(spec.name(), names.iter().copied()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("there are {}", names.join(", ")),
            };
            LayerError::new(spec.name(), format_args!("no layer of this name; {hint}"))
        })
    }

    /// Puts layers over a file system; the first one is the outermost.
    ///
    /// # Errors
    /// When a layer or an option is not known, or a layer cannot be made; key files that were made are gone then.
    pub fn build(
        &self,
        specs: &[LayerSpec],
        file_system: Box<dyn FileSystem>,
    ) -> Result<(Box<dyn FileSystem>, Summary), LayerError> {
        let mut summary = Summary::default();
        let built = self.build_into(&mut summary, specs, file_system);
        if built.is_err() {
            summary.remove_made();
        }
        Ok((built?, summary))
    }

    fn build_into(
        &self,
        summary: &mut Summary,
        specs: &[LayerSpec],
        file_system: Box<dyn FileSystem>,
    ) -> Result<Box<dyn FileSystem>, LayerError> {
        let mut below = file_system;
        for spec in specs.iter().rev() {
            let entry = self.find(spec)?;
            let mut options = Options::new(spec);
            let built = (entry.constructor)(&mut options, below)?;
            summary.made.extend(built.made);
            options.finish()?;
            below = built.file_system;
            summary.layers.insert(
                0,
                Line {
                    name: entry.name,
                    about: built.about,
                    needs: built.needs,
                    reporter: built.reporter,
                    shown: built.shown,
                },
            );
        }
        Ok(below)
    }
}

/// Puts the layers of this crate over a file system; the first one is the outermost. See
/// [`Registry::build`].
///
/// # Errors
/// When a layer or an option is not known, or a layer cannot be made.
pub fn build(
    specs: &[LayerSpec],
    file_system: Box<dyn FileSystem>,
) -> Result<(Box<dyn FileSystem>, Summary), LayerError> {
    Registry::default().build(specs, file_system)
}

struct Line {
    name: &'static str,
    about: String,
    needs: Needs,
    reporter: Option<Arc<dyn Reporter>>,
    shown: Option<Shown>,
}

/// What stands over a file system, from the outside: shown at start.
#[derive(Default)]
pub struct Summary {
    layers: Vec<Line>,
    made: Vec<NewKeyFile>,
}

impl fmt::Debug for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Summary {
    /// One line for each layer, the outermost first: name and settings.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.layers.iter().map(|layer| {
            if layer.about.is_empty() {
                layer.name.to_owned()
            } else {
                format!("{}: {}", layer.name, layer.about)
            }
        })
    }

    /// The modes that are turned off, each with the layer and its reason.
    pub fn turned_off(&self) -> impl Iterator<Item = String> {
        self.layers.iter().flat_map(|layer| {
            let modes = layer.needs.turned_off();
            modes
                .into_iter()
                .map(move |mode| format!("{}: {mode}", layer.name))
        })
    }

    /// What all layers need together.
    #[must_use]
    pub fn needs(&self) -> Needs {
        let mut all = Needs::default();
        for layer in &self.layers {
            all.data |= layer.needs.data;
            all.contents |= layer.needs.contents;
            all.opens |= layer.needs.opens;
            all.flushes |= layer.needs.flushes;
        }
        let reasons: Vec<_> = self.turned_off().collect();
        all.because = reasons.join("; ");
        all
    }

    /// How names of the file system below all layers are shown by the outermost one. Whoever tells the kernel of
    /// changes below must tell these names.
    #[must_use]
    pub fn shown(&self) -> Shown {
        let layers = self.layers.iter().rev();
        let shown: Vec<_> = layers.filter_map(|layer| layer.shown.clone()).collect();
        Arc::new(move |name| {
            let mut shown = shown.iter();
            shown.try_fold(name.to_owned(), |name, shown| shown(&name))
        })
    }

    /// The key files that were made for these layers.
    #[must_use]
    pub fn made(&self) -> &[NewKeyFile] {
        &self.made
    }

    fn remove_made(&self) {
        self.made.iter().for_each(crypt::remove);
    }

    /// What the layers have seen so far, of those that can tell.
    #[must_use]
    pub fn report(&self) -> String {
        let mut text = String::new();
        for layer in &self.layers {
            let report = layer.reporter.as_ref().map(|reporter| reporter.report());
            if let Some(report) = report.filter(|report| !report.is_empty()) {
                text.push_str(&format!("{}\n", layer.name));
                for line in report.lines() {
                    text.push_str(&format!("  {line}\n"));
                }
            }
        }
        text
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.lines().chain(self.turned_off()) {
            writeln!(f, "{line}")?;
        }
        Ok(())
    }
}

/// Puts a layer over a file system, with the switches of the option `switches=FILE`.
///
/// # Errors
/// When the file cannot be read or is not right.
pub fn stack<L: Layer>(
    options: &mut Options<'_>,
    layer: L,
    file_system: Box<dyn FileSystem>,
    about: String,
    reporter: Option<Arc<dyn Reporter>>,
) -> Result<Built, LayerError> {
    let switches = match options.text("switches")? {
        None => Switches::default(),
        Some(path) => {
            let text = read_text(Path::new(path), SWITCHES_MAX);
            let text = text.map_err(|error| options.error(format_args!("{path}: {error}")))?;
            let switches = text.parse();
            switches.map_err(|error| options.error(format_args!("{path}: {error}")))?
        }
    };
    let layered = Layered::with_switches(layer, file_system, &switches);
    Ok(Built {
        needs: layered.needs().clone(),
        file_system: Box::new(layered),
        about,
        reporter,
        shown: None,
        made: None,
    })
}
