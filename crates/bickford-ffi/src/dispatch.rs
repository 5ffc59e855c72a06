//! A file system behind callbacks.

use std::ffi::c_void;

use bickford::abi::InitFlags;
#[allow(
    clippy::wildcard_imports,
    reason = "the operation table names every operation and answer"
)]
use bickford::ops::*;
use bickford::{Context, Errno, FileSystem, Negotiation, Reply};

use crate::abi::*;
use crate::answer::{Buffer, FromFlat};
use crate::deferred::{self, Destination, Handle, InCall, Owner, errno};
use crate::operations::{bit, for_each_operation};
use crate::options::Options;
use crate::parameters::{Parameters, put_data};
use crate::tuning::Tuning;

pub(crate) type Function = unsafe extern "C" fn(
    *mut c_void,
    *const bickford_request,
    *mut bickford_answer,
    *mut bickford_reply,
) -> i32;

/// What the other side passed to be handed back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: never dereferenced here; whoever passed it says that any thread may use it.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// A request with what every request has.
pub(crate) fn request(cx: &Context<'_>, operation: u32) -> bickford_request {
    bickford_request {
        unique: cx.unique().0,
        operation,
        uid: cx.uid(),
        gid: cx.gid(),
        pid: cx.pid(),
        ..bickford_request::default()
    }
}

/// Applies a configuration when a session begins.
pub(crate) fn configure(config: &bickford_config, negotiation: &mut Negotiation) {
    negotiation.want(InitFlags::from_bits_retain(config.want));
    negotiation.refuse(InitFlags::from_bits_retain(config.refuse));
    if config.max_write > 0 {
        negotiation.set_max_write(config.max_write);
    }
    if config.max_readahead > 0 {
        negotiation.set_max_readahead(config.max_readahead);
    }
}

/// Serves requests by a callback.
pub(crate) struct Callbacks {
    pub(crate) owner: Owner,
    user: User,
    operations: u64,
    function: Function,
    config: bickford_config,
    pub(crate) prompt: bool,
    max_stack_depth: u32,
    tuning: Tuning,
}

impl Callbacks {
    pub(crate) fn new(
        callbacks: &bickford_callbacks,
        function: Function,
        config: bickford_config,
        options: &Options,
    ) -> Self {
        Self {
            owner: Owner::new(),
            user: User(callbacks.user),
            operations: callbacks.operations,
            function,
            config,
            prompt: options.prompt,
            max_stack_depth: options.max_stack_depth,
            tuning: options.tuning,
        }
    }

    pub(crate) fn wants(&self, operation: u32) -> bool {
        self.operations & bit(operation) != 0
    }

    /// What the session begins with.
    pub(crate) fn negotiate(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        // Without them the kernel keeps locks to itself.
        if self.wants(BICKFORD_OP_SETLK) {
            negotiation.want(InitFlags::FLOCK_LOCKS);
            if self.wants(BICKFORD_OP_GETLK) {
                negotiation.want(InitFlags::POSIX_LOCKS);
            }
        }
        configure(&self.config, negotiation);
        self.tuning.apply(negotiation);
        if self.max_stack_depth > 0 {
            negotiation.want(InitFlags::PASSTHROUGH);
            negotiation.refuse(InitFlags::WRITEBACK_CACHE);
            negotiation.set_max_stack_depth(self.max_stack_depth);
        }
        if self.wants(BICKFORD_OP_INIT) {
            self.choose(negotiation)?;
        }
        Ok(())
    }

    /// Has the callback choose among the flags that are offered, but for those that the session itself needs: without
    /// `INIT_EXT` the kernel reads none from bit 32 on.
    fn choose(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
        let request = bickford_request {
            operation: BICKFORD_OP_INIT,
            offset: negotiation.offered().bits(),
            size: negotiation.max_write().into(),
            flags: negotiation.kernel_minor(),
            ..bickford_request::default()
        };
        let mut answer = bickford_answer {
            count: negotiation.wanted().bits(),
            ..bickford_answer::default()
        };
        match self.tell(&request, &mut answer) {
            0 => {
                let own = InitFlags::INIT_EXT | InitFlags::OVER_IO_URING;
                let chosen = InitFlags::from_bits_retain(answer.count) - own;
                negotiation.refuse(negotiation.wanted() - chosen - own);
                negotiation.want(chosen);
                Ok(())
            }
            // Callers made before it was there may want whatever there is.
            code if errno(code) == Errno::NOSYS => Ok(()),
            code => Err(errno(code)),
        }
    }

    /// Calls the callback, whose answer goes to `reply`; `buffer` has the room that it has.
    pub(crate) fn dispatch<D: Destination>(
        &self,
        cx: &Context<'_>,
        request: &bickford_request,
        mut buffer: Buffer,
        reply: D,
    ) {
        let mut answer = bickford_answer::default();
        buffer.offer(&mut answer);
        let mut call = InCall {
            owner: self.owner,
            context: cx,
            request,
            reply: Some(reply),
            buffer,
            handle: None,
        };
        let mut handle = Handle::new(&mut call);
        // SAFETY: the function was passed with this signature; its arguments live during the call.
        let code = unsafe {
            (self.function)(
                self.user.0,
                request,
                &raw mut answer,
                (&raw mut handle).cast(),
            )
        };
        let InCall {
            reply,
            buffer,
            handle,
            ..
        } = call;
        match (reply, handle) {
            (Some(reply), _) => reply.complete(outcome(cx, code).and_then(|()| {
                // SAFETY: a callback that says success leaves the buffer, or points to the data.
                unsafe { D::Answer::from_flat(&answer, request, buffer) }
            })),
            (None, Some(handle)) if code != BICKFORD_LATER => {
                deferred::take_back(handle, outcome(cx, code).map(|()| &answer));
            }
            (None, _) => {}
        }
    }

    /// The session has ended.
    pub(crate) fn end(&self) {
        if self.wants(BICKFORD_OP_DESTROY) {
            let request = bickford_request {
                operation: BICKFORD_OP_DESTROY,
                ..bickford_request::default()
            };
            self.tell(&request, &mut bickford_answer::default());
        }
        self.owner.end();
    }

    /// For what has no reply.
    fn tell(&self, request: &bickford_request, answer: &mut bickford_answer) -> i32 {
        // SAFETY: as above.
        unsafe { (self.function)(self.user.0, request, answer, std::ptr::null_mut()) }
    }
}

/// What a callback that did not leave the answer for later made of it.
fn outcome(cx: &Context<'_>, code: i32) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        1.. => Err(errno(code)),
        _ => {
            tracing::error!(
                operation = cx.opcode().name(),
                code,
                "a callback returned neither an errno nor a deferred reply"
            );
            Err(Errno::IO)
        }
    }
}

macro_rules! define_callbacks {
    ($($method:ident: $operation:ty => $answer:ty, $number:ident, $default:expr;)+) => {
        impl FileSystem for Callbacks {
            fn init(&self, negotiation: &mut Negotiation) -> Result<(), Errno> {
                if self.wants(BICKFORD_OP_READDIRPLUS) {
                    negotiation.want(InitFlags::DO_READDIRPLUS);
                    // With it the rest of a listing comes as READDIR.
                    if self.wants(BICKFORD_OP_READDIR) {
                        negotiation.want(InitFlags::READDIRPLUS_AUTO);
                    }
                }
                self.negotiate(negotiation)
            }

            fn is_prompt(&self) -> bool {
                self.prompt
            }

            fn destroy(&self) {
                self.end();
            }

            fn forget(&self, forgets: &[Forget]) {
                if !self.wants(BICKFORD_OP_FORGET) {
                    return;
                }
                for group in forgets.chunks(64) {
                    let mut pairs = [0_u64; 128];
                    for (pair, forget) in pairs.chunks_exact_mut(2).zip(group) {
                        pair.copy_from_slice(&[forget.node.0, forget.count]);
                    }
                    let request = bickford_request {
                        operation: BICKFORD_OP_FORGET,
                        size: group.len() as u64,
                        data: pairs.as_ptr().cast(),
                        data_length: group.len() as u64 * 16,
                        ..bickford_request::default()
                    };
                    self.tell(&request, &mut bickford_answer::default());
                }
            }

            $(
                fn $method(&self, cx: &Context<'_>, op: $operation, reply: Reply<$answer>) {
                    if !self.wants($number) {
                        return reply.complete($default);
                    }
                    let mut request = request(cx, $number);
                    op.fill(&mut request);
                    let payload = match op.payload().transpose() {
                        Ok(payload) => payload,
                        Err(error) => {
                            return reply.error(Errno::from_io_error(&error).unwrap_or(Errno::IO));
                        }
                    };
                    if let Some(data) = &payload {
                        put_data(&mut request, data);
                    }
                    match Buffer::with_room(<$answer>::room(&request)) {
                        Ok(buffer) => self.dispatch(cx, &request, buffer, reply),
                        Err(errno) => reply.error(errno),
                    }
                }
            )+
        }
    };
}

for_each_operation!(define_callbacks);

#[cfg(test)]
mod tests {
    use bickford::abi::Opcode;
    use bickford::transport::memory::{Kernel, Message};

    use super::*;
    use crate::deferred::*;
    use crate::parameters::bytes;

    unsafe extern "C" fn nothing(
        _: *mut c_void,
        _: *const bickford_request,
        _: *mut bickford_answer,
        _: *mut bickford_reply,
    ) -> i32 {
        0
    }

    #[test]
    fn callbacks_are_prompt_when_they_say_so() {
        let callbacks = bickford_callbacks {
            user: std::ptr::null_mut(),
            operations: 0,
            dispatch: Some(nothing),
        };
        for (text, prompt) in [("", false), ("prompt", true)] {
            let config = bickford_config::default();
            let options = Options::parse(text).unwrap();
            let filesystem = Callbacks::new(&callbacks, nothing, config, &options);
            assert_eq!(filesystem.is_prompt(), prompt);
        }
    }

    /// What INIT settles for a file system of these operations.
    fn settled(operations: &[u32]) -> InitFlags {
        let callbacks = bickford_callbacks {
            user: std::ptr::null_mut(),
            operations: operations.iter().map(|number| bit(*number)).sum(),
            dispatch: Some(nothing),
        };
        let config = bickford_config::default();
        let mut kernel = Kernel::new(Callbacks::new(
            &callbacks,
            nothing,
            config,
            &Options::parse("").unwrap(),
        ));
        assert_eq!(kernel.init().unwrap().error, 0);
        kernel.server().negotiated().unwrap().protocol.flags
    }

    #[test]
    fn the_rest_of_a_listing_comes_as_readdir_only_where_that_is_wanted() {
        let (plus, auto) = (InitFlags::DO_READDIRPLUS, InitFlags::READDIRPLUS_AUTO);
        let settled = |operations: &[u32]| settled(operations) & (plus | auto);
        assert!(settled(&[BICKFORD_OP_READDIR]).is_empty());
        assert_eq!(settled(&[BICKFORD_OP_READDIRPLUS]), plus);
        let both = [BICKFORD_OP_READDIR, BICKFORD_OP_READDIRPLUS];
        assert_eq!(settled(&both), plus | auto);
    }

    #[test]
    fn locks_come_where_they_are_wanted() {
        let (flock, posix) = (InitFlags::FLOCK_LOCKS, InitFlags::POSIX_LOCKS);
        let settled = |operations: &[u32]| settled(operations) & (flock | posix);
        assert!(settled(&[BICKFORD_OP_GETLK]).is_empty());
        assert_eq!(settled(&[BICKFORD_OP_SETLK]), flock);
        let both = [BICKFORD_OP_GETLK, BICKFORD_OP_SETLK];
        assert_eq!(settled(&both), flock | posix);
    }

    /// What a callback is asked at INIT, and what it returns.
    #[derive(Default)]
    struct Choice {
        code: i32,
        offered: u64,
        wanted: u64,
        minor: u32,
        chosen: u64,
    }

    unsafe extern "C" fn choose(
        user: *mut c_void,
        request: *const bickford_request,
        answer: *mut bickford_answer,
        reply: *mut bickford_reply,
    ) -> i32 {
        // SAFETY: the test passed a choice; the other arguments live during the call.
        let (choice, request, answer) =
            unsafe { (&mut *user.cast::<Choice>(), &*request, &mut *answer) };
        assert!(request.operation == BICKFORD_OP_INIT && reply.is_null());
        (choice.offered, choice.minor) = (request.offset, request.flags);
        choice.wanted = std::mem::replace(&mut answer.count, choice.chosen);
        choice.code
    }

    /// What INIT answers, and settles, when a callback chooses these.
    fn settled_by(choice: &mut Choice) -> (i32, Option<InitFlags>) {
        let callbacks = bickford_callbacks {
            user: std::ptr::from_mut(choice).cast(),
            operations: bit(BICKFORD_OP_INIT) | bit(BICKFORD_OP_SETLK),
            dispatch: Some(choose),
        };
        let config = bickford_config {
            want: InitFlags::DONT_MASK.bits(),
            ..bickford_config::default()
        };
        let options = Options::parse("").unwrap();
        let mut kernel = Kernel::new(Callbacks::new(&callbacks, choose, config, &options));
        let code = kernel.init().unwrap().error;
        let settled = kernel.server().negotiated();
        (code, settled.map(|settled| settled.protocol.flags))
    }

    #[test]
    fn flags_are_chosen_at_init() {
        let mut choice = Choice {
            chosen: (InitFlags::POSIX_ACL | InitFlags::PASSTHROUGH).bits(),
            ..Choice::default()
        };
        let (code, settled) = settled_by(&mut choice);
        let wanted = InitFlags::POSIX_ACL | InitFlags::PASSTHROUGH | InitFlags::INIT_EXT;
        assert_eq!((code, settled), (0, Some(wanted)));
        assert_eq!(choice.minor, bickford::abi::MINOR_VERSION);
        let before = InitFlags::from_bits_retain(choice.wanted);
        assert!(before.contains(InitFlags::DONT_MASK | InitFlags::FLOCK_LOCKS));
        assert!(!before.contains(InitFlags::POSIX_ACL));
        let offered = InitFlags::from_bits_retain(choice.offered);
        assert!(offered.contains(InitFlags::POSIX_ACL | InitFlags::ALLOW_IDMAP));
    }

    #[test]
    fn a_callback_refuses_the_session_or_knows_nothing_of_init() {
        let mut choice = Choice {
            code: Errno::ACCESS.raw_os_error(),
            ..Choice::default()
        };
        assert_eq!(settled_by(&mut choice), (-choice.code, None));
        choice.code = BICKFORD_LATER;
        let refused = -Errno::IO.raw_os_error();
        assert_eq!(settled_by(&mut choice), (refused, None));
        choice.code = Errno::NOSYS.raw_os_error();
        let (code, settled) = settled_by(&mut choice);
        let wanted = InitFlags::from_bits_retain(choice.wanted);
        assert_eq!((code, settled), (0, Some(wanted)));
    }

    /// The name says what is done after the reply was deferred, the user what is returned then.
    unsafe extern "C" fn defer(
        user: *mut c_void,
        request: *const bickford_request,
        answer: *mut bickford_answer,
        reply: *mut bickford_reply,
    ) -> i32 {
        let mut handle = 0;
        // SAFETY: the arguments live during the call.
        let name = unsafe {
            assert_eq!(bickford_reply_defer(reply, &raw mut handle), 0);
            (*answer).node = 7;
            (*answer).attr.mode = 0o100_644;
            bytes((*request).name, (*request).name_length).unwrap()
        };
        if name == b"completed" {
            const NOSPC: i32 = 28;
            // SAFETY: without an answer.
            let code = unsafe { bickford_deferred_complete(handle, NOSPC, std::ptr::null()) };
            assert_eq!(code, 0);
        }
        user.addr() as i32
    }

    /// Leaves the reply for later; the user is where its number is put.
    unsafe extern "C" fn leave(
        user: *mut c_void,
        _: *const bickford_request,
        _: *mut bickford_answer,
        reply: *mut bickford_reply,
    ) -> i32 {
        // SAFETY: the test passed a number; a reply comes with all that is answered.
        unsafe {
            if reply.is_null() {
                return 0;
            }
            assert_eq!(bickford_reply_defer(reply, user.cast()), 0);
        }
        BICKFORD_LATER
    }

    #[test]
    fn a_session_that_ends_keeps_nothing_for_replies_but_their_buffers() {
        let mut handle = 0_u64;
        let callbacks = bickford_callbacks {
            user: (&raw mut handle).cast(),
            operations: bit(BICKFORD_OP_READLINK),
            dispatch: Some(leave),
        };
        let config = bickford_config::default();
        let mut kernel = Kernel::new(Callbacks::new(
            &callbacks,
            leave,
            config,
            &Options::parse("").unwrap(),
        ));
        assert_eq!(kernel.init().unwrap().error, 0);
        kernel.send(Opcode::Readlink, 7, b"");
        assert_eq!(bickford_deferred_interrupted(handle), 0);
        assert_eq!(kernel.server().in_flight().len(), 1);
        kernel.server().destroy();
        assert_eq!(kernel.server().in_flight().len(), 0);
        assert_eq!(bickford_deferred_interrupted(handle), 1);
        let mut answer = bickford_answer::default();
        // SAFETY: the answer lives on the stack, and its data until the reply is completed.
        let codes = unsafe {
            let filled = bickford_deferred_answer(handle, &raw mut answer);
            answer.data.write(b'x');
            let completed = bickford_deferred_complete(handle, 0, &raw const answer);
            let again = bickford_deferred_complete(handle, 0, &raw const answer);
            [filled, completed, again]
        };
        assert_eq!(codes, [0, 0, BICKFORD_ERROR_HANDLE]);
    }

    fn after_deferring(name: &[u8], code: i32) -> Message {
        let callbacks = bickford_callbacks {
            user: std::ptr::without_provenance_mut(code as usize),
            operations: bit(BICKFORD_OP_LOOKUP),
            dispatch: Some(defer),
        };
        let config = bickford_config::default();
        let mut kernel = Kernel::new(Callbacks::new(
            &callbacks,
            defer,
            config,
            &Options::parse("").unwrap(),
        ));
        assert_eq!(kernel.init().unwrap().error, 0);
        kernel.call(Opcode::Lookup, 1, name).unwrap()
    }

    #[test]
    fn a_callback_that_fails_after_it_deferred_is_answered() {
        const ACCESS: i32 = 13;
        assert_eq!(after_deferring(b"name\0", ACCESS).error, -ACCESS);
        let filled_in = after_deferring(b"name\0", 0);
        assert_eq!((filled_in.error, filled_in.body.first()), (0, Some(&7)));
        assert_eq!(after_deferring(b"name\0", -77).error, -5);
        assert_eq!(after_deferring(b"completed\0", ACCESS).error, -28);
    }
}
