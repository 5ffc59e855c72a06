//! What is said of a mount that other mount namespaces have, too.

use bickford::mount::Elsewhere;

/// Most places that a message names.
const NAMED: usize = 3;

/// Where it is mounted still, and what to do, as the end of a sentence; `None` where it is nowhere.
#[must_use]
pub fn told(places: &[Elsewhere]) -> Option<String> {
    let first = places.first()?;
    let named = places.iter().take(NAMED).map(Elsewhere::to_string);
    let mut named = named.collect::<Vec<_>>().join(", ");
    if places.len() > NAMED {
        named += &format!(" and {} more", places.len() - NAMED);
    }
    Some(format!(
        "other mount namespaces, as of containers, have it mounted still: {named}; unmount it there, too \
         (nsenter -t {} -m umount {}), or end what runs there",
        first.pid,
        first.mountpoint.display()
    ))
}
