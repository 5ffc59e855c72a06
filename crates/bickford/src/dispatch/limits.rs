//! Limits of the kernel that whoever mounts may know better than the file system.

use crate::filesystem::Negotiation;

/// What INIT tells the kernel to keep to; `None` leaves it to the file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelLimits {
    /// How many requests of the background queue (read-ahead, write-back, RELEASE) are under way at once, at least one.
    pub max_background: Option<u16>,
    /// From how many of them on the kernel takes the device to be congested; three quarters of
    /// [`Self::max_background`] where that alone is given, as the kernel itself has it.
    pub congestion_threshold: Option<u16>,
    /// After how many seconds without an answer the kernel ends the connection (Linux 6.14); zero for never.
    pub request_timeout: Option<u16>,
}

impl KernelLimits {
    /// Settles what is given.
    pub fn apply(&self, negotiation: &mut Negotiation) {
        let (most, congestion) = negotiation.background();
        let most = self.max_background.unwrap_or(most);
        let congestion = match (self.congestion_threshold, self.max_background) {
            (Some(congestion), _) => congestion,
            (None, Some(most)) => most - most / 4,
            (None, None) => congestion,
        };
        negotiation.set_background(most, congestion);
        if let Some(seconds) = self.request_timeout {
            negotiation.set_request_timeout(seconds);
        }
    }
}

#[cfg(test)]
mod tests {
    use bickford_abi::InitIn;

    use super::*;

    #[test]
    fn what_is_given_is_settled() {
        let plain = Negotiation::new(&InitIn::default());
        let settled = |max_background, congestion_threshold| {
            let mut negotiation = plain.clone();
            let limits = KernelLimits {
                max_background,
                congestion_threshold,
                request_timeout: None,
            };
            limits.apply(&mut negotiation);
            negotiation.background()
        };
        assert_eq!(settled(None, None), plain.background());
        assert_eq!(settled(Some(8), None), (8, 6));
        assert_eq!(settled(Some(8), Some(2)), (8, 2));
        assert_eq!(settled(None, Some(2)), (plain.background().0, 2));
        assert_eq!(settled(Some(u16::MAX), None), (u16::MAX, 49_152));
    }
}
