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
    /// After how many seconds without an answer the kernel ends the connection; zero for never. Where the kernel does not, before
    /// Linux 6.15, the session does not begin. See [`Negotiation::set_request_timeout`].
    pub request_timeout: Option<u16>,
}

impl KernelLimits {
    /// Settles what is given, or says why that cannot be.
    pub(crate) fn apply(&self, negotiation: &mut Negotiation) -> Result<(), &'static str> {
        let (most, congestion) = negotiation.background();
        let most = self.max_background.unwrap_or(most);
        let congestion = match (self.congestion_threshold, self.max_background) {
            (Some(congestion), _) => congestion,
            (None, Some(most)) => most - most / 4,
            (None, None) => congestion,
        };
        negotiation.set_background(most, congestion);
        let seconds = self.request_timeout;
        if seconds.is_some_and(|seconds| !negotiation.set_request_timeout(seconds)) {
            return Err(
                "request_timeout: this kernel ends no connection for want of an answer; Linux 6.15 is needed, or leave it out",
            );
        }
        Ok(())
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
            limits.apply(&mut negotiation).unwrap();
            negotiation.background()
        };
        assert_eq!(settled(None, None), plain.background());
        assert_eq!(settled(Some(8), None), (8, 6));
        assert_eq!(settled(Some(8), Some(2)), (8, 2));
        assert_eq!(settled(None, Some(2)), (plain.background().0, 2));
        assert_eq!(settled(Some(u16::MAX), None), (u16::MAX, 49_152));
    }

    #[test]
    fn what_the_kernel_does_not_offer_is_told() {
        let asked = |request_timeout| {
            let limits = KernelLimits {
                request_timeout,
                ..KernelLimits::default()
            };
            limits.apply(&mut Negotiation::new(&InitIn::default()))
        };
        assert_eq!(asked(None), Ok(()));
        assert_eq!(asked(Some(0)), Ok(()));
        assert!(asked(Some(30)).unwrap_err().contains("Linux 6.15"));
    }
}
