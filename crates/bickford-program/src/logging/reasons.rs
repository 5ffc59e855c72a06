//! The errors that were logged while a mount began: the reasons why it did not, whatever `--log` shows.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Most that are kept.
pub(super) const KEPT: usize = 4;

/// Where the library logs that INIT was refused: with the errno alone, after whatever the file system said of it.
const OF_REFUSAL: &str = "bickford::dispatch::server::init";

static REASONS: Mutex<Vec<Reason>> = Mutex::new(Vec::new());
static TOLD: AtomicBool = AtomicBool::new(false);

struct Reason {
    text: String,
    of_refusal: bool,
}

fn kept() -> MutexGuard<'static, Vec<Reason>> {
    REASONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was logged as an error until now, of the first of them, for whoever tells it.
pub fn take() -> Option<String> {
    TOLD.store(true, Ordering::SeqCst);
    let kept = std::mem::take(&mut *kept());
    let own = kept.iter().filter(|reason| !reason.of_refusal);
    let told = match own.clone().next() {
        Some(_) => own.collect::<Vec<_>>(),
        None => kept.iter().collect(),
    };
    let told = told.into_iter().map(|reason| reason.text.as_str());
    let told = told.collect::<Vec<_>>().join("; ");
    (!told.is_empty()).then_some(told)
}

/// Whether they were taken.
pub(super) fn are_told() -> bool {
    TOLD.load(Ordering::SeqCst)
}

/// Keeps what is logged as an error.
pub(super) struct Reasons;

impl<S: Subscriber> Layer<S> for Reasons {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if *event.metadata().level() != Level::ERROR {
            return;
        }
        let mut kept = kept();
        if kept.len() < KEPT {
            let mut text = Text::default();
            event.record(&mut text);
            kept.push(Reason {
                text: text.0,
                of_refusal: event.metadata().target() == OF_REFUSAL,
            });
        }
    }
}

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}
