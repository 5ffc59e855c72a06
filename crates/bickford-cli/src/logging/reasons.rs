//! The errors that were logged while a mount began: the reasons why it did not, whatever `--log` shows.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Most that are kept.
const KEPT: usize = 4;

static REASONS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn kept() -> MutexGuard<'static, Vec<String>> {
    REASONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What was logged as an error until now, of the first of them.
pub(crate) fn reasons() -> Option<String> {
    let kept = kept();
    (!kept.is_empty()).then(|| kept.join("; "))
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
            kept.push(text.0);
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
