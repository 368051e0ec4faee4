//! The asymmetric barrier: nearly free for readers, expensive for writers.
//!
//! [`light`] in a reader and [`heavy`] in a writer order like two sequentially consistent fences:
//! if the writer's accesses after `heavy` miss what the reader wrote before its `light`, then the
//! reader's accesses after `light` see what the writer wrote before `heavy`.
//!
//! On Linux `heavy` is `membarrier(PRIVATE_EXPEDITED)`: the kernel makes each processor that runs a
//! thread of this process execute a full barrier before the call returns, and a thread that is not
//! running executed one when it was switched out. So each reader has a full barrier *somewhere* in
//! its program during the call, and for `light` it is enough that the compiler keeps the order.
//!
//! On Windows on x86-64, `heavy` is `FlushProcessWriteBuffers`, which interrupts the same
//! processors and empties their write buffers before it returns. There the write buffer is all that
//! separates a compiler fence from a full one: a processor may execute a load before an earlier
//! store, and reorders nothing else. The function's documentation promises nothing about loads, so
//! it is not used on Arm, which reorders them. (In Wine 8 the function does nothing: see
//! `docs/src/platforms.md`.)
//!
//! Elsewhere, or where a sandbox filters the call, both sides are real fences. (macOS has no such
//! call.)

use crate::domain::domain;
use relativist_core::hint::cold_path;
use relativist_core::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    fence,
};
use relativist_core::sync::compiler_fence;

/// The barrier that orders readers and writers. It is chosen once per process, at first use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// Readers execute no fence; writers call `membarrier` (Linux 4.14 and later), or
    /// `FlushProcessWriteBuffers` (Windows on x86-64).
    Membarrier,
    /// Readers and writers execute a sequentially consistent fence each. Works everywhere.
    Fence,
}

/// The error of [`set_barrier`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BarrierError {
    /// RCU is already in use with this barrier. Set the barrier before any other call of this
    /// crate.
    InUse(Barrier),
    /// The kernel does not offer `membarrier`, or what replaces it, to this process.
    Unsupported,
}

impl std::fmt::Display for BarrierError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::InUse(active) => write!(f, "RCU already runs with {active:?}: set the barrier before its first use"),
            Self::Unsupported => f.write_str(
                "this system or sandbox has no membarrier(PRIVATE_EXPEDITED) nor what replaces it: use Barrier::Fence",
            ),
        }
    }
}

impl std::error::Error for BarrierError {}

/// Sets the barrier instead of letting the first use choose it. Use this in tests, and in processes
/// that will later enter a sandbox that forbids `membarrier`.
///
/// If the kernel later refuses `membarrier` to a thread of a process that uses
/// [`Barrier::Membarrier`], the process aborts with a message on stderr: without the barrier,
/// objects would be freed while readers use them. A seccomp filter may apply to a single thread and
/// the threads that it starts.
///
/// # Errors
///
/// Returns [`BarrierError::InUse`] if RCU was used before with another barrier, and
/// [`BarrierError::Unsupported`] if the kernel refuses `membarrier`.
///
/// ```
/// use relativist_rcu::{Barrier, active_barrier, set_barrier};
/// set_barrier(Barrier::Fence)?;
/// assert_eq!(active_barrier(), Barrier::Fence);
/// # Ok::<(), relativist_rcu::BarrierError>(())
/// ```
pub fn set_barrier(wanted: Barrier) -> Result<(), BarrierError> {
    if wanted == Barrier::Membarrier && !membarrier::register() {
        return Err(BarrierError::Unsupported);
    }
    domain().initialize(|| wanted);
    match active_barrier() {
        active if active == wanted => Ok(()),
        active => Err(BarrierError::InUse(active)),
    }
}

/// Returns the barrier that this process uses. Chooses it if this is the first use of RCU.
pub fn active_barrier() -> Barrier {
    domain().initialize(choose);
    domain().barrier()
}

/// Returns the barrier that the first use chooses if `set_barrier` was not called.
pub(crate) fn choose() -> Barrier {
    if membarrier::register() { Barrier::Membarrier } else { Barrier::Fence }
}

/// Executes the reader's half. `fenced` is the choice of the process.
#[inline(always)]
pub(crate) fn light(fenced: bool) {
    if fenced {
        cold_path();
        // Pairs with the fence in `heavy`.
        // litmus: entry-fence, slot-unseen, stripe-unseen, cut-unused, array-replaced
        // litmus: key-move-left, key-move-landed, bucket-vacated, lock-sleep
        fence(SeqCst);
    } else {
        // Pairs with `membarrier` in `heavy`, which makes the processor execute the barrier.
        // litmus: membarrier-before-counter, membarrier-before-slot, membarrier-before-find
        // litmus: membarrier-lock-sleep
        compiler_fence(SeqCst);
    }
}

/// Executes the writer's half.
pub(crate) fn heavy() {
    if domain().fenced(Relaxed) {
        // Pairs with the fence in `light`.
        // litmus: entry-fence, ticket-fence, stripe-unseen, cut-unused, array-replaced
        // litmus: key-move-left, key-move-landed, bucket-vacated, lock-sleep
        fence(SeqCst);
    } else {
        // Pairs with the compiler fence in `light`. The fences around the call keep the compiler
        // from reordering accesses with it.
        // litmus: membarrier-before-use, membarrier-before-leave, membarrier-after-leave
        compiler_fence(SeqCst);
        membarrier::execute();
        compiler_fence(SeqCst);
    }
}

/// Keeps earlier stores before later loads, together with [`heavy_barrier`] in another thread: if
/// one thread stores to A, calls this, and loads B, and the other one stores to B, calls
/// `heavy_barrier`, and loads A, then at least one of them sees the other one's store.
///
/// Costs nothing if the process uses [`Barrier::Membarrier`], and otherwise a fence. The process
/// must have used RCU before.
///
/// ```
/// use relativist_rcu::{heavy_barrier, light_barrier, read};
/// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
///
/// static UNLOCKED: AtomicBool = AtomicBool::new(false);
/// static SLEEPS: AtomicBool = AtomicBool::new(false);
/// drop(read()); // RCU chooses its barrier
/// let (wakes, sees) = std::thread::scope(|scope| {
///     let often = scope.spawn(|| (UNLOCKED.store(true, Relaxed), light_barrier(), SLEEPS.load(Relaxed)).2);
///     let seldom = scope.spawn(|| (SLEEPS.store(true, Relaxed), heavy_barrier(), UNLOCKED.load(Relaxed)).2);
///     (often.join().unwrap(), seldom.join().unwrap())
/// });
/// assert!(wakes || sees);
/// ```
#[inline(always)]
pub fn light_barrier() {
    light(domain().fenced(Relaxed));
}

/// The other half of [`light_barrier`]: a system call of some microseconds, or a fence.
pub fn heavy_barrier() {
    heavy();
}

/// Registers again in the child of a `fork`, which is a new process to the kernel.
#[cfg(all(unix, not(relativist_loom)))]
pub(crate) fn reregister_in_child() {
    if domain().barrier() == Barrier::Membarrier {
        // A refusal does not matter to a child that only calls `exec`. In other children `execute`
        // aborts.
        membarrier::register();
    }
}

#[cfg(all(target_os = "linux", not(any(relativist_loom, miri))))]
mod membarrier {
    /// Registers for the expedited private command. Returns false if the kernel or a filter
    /// refuses.
    pub(super) fn register() -> bool {
        call(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0 && call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0
    }

    pub(super) fn execute() {
        if call(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 {
            abort(&std::io::Error::last_os_error());
        }
    }

    /// Ends the process. Without the barrier, objects would be freed while readers use them.
    /// Unwinding would be wrong, too: the caller may be in the middle of a change that other
    /// threads see, such as the resize of a table.
    #[cold]
    fn abort(error: &std::io::Error) -> ! {
        use std::io::Write;

        // Not `eprintln!`, which panics if stderr is closed.
        let _ = writeln!(
            std::io::stderr(),
            "relativist-rcu: membarrier failed with \"{error}\", though it succeeded when this process began to use RCU. \
             Aborting. A sandbox that is entered later must allow membarrier, or the process must call \
             set_barrier(Barrier::Fence) before its first use of RCU. (A seccomp filter may apply to one thread only.)"
        );
        std::process::abort()
    }

    fn call(command: libc::c_int) -> libc::c_long {
        // SAFETY: membarrier takes three integers and accesses no memory of this process.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
    }
}

#[cfg(all(windows, target_arch = "x86_64", not(relativist_loom)))]
mod membarrier {
    #[link(name = "kernel32")]
    unsafe extern "system" {
        // Needs no registration, and cannot fail.
        #[link_name = "FlushProcessWriteBuffers"]
        safe fn flush_process_write_buffers();
    }

    pub(super) fn register() -> bool {
        true
    }

    pub(super) fn execute() {
        flush_process_write_buffers();
    }
}

#[cfg(any(not(any(target_os = "linux", all(windows, target_arch = "x86_64"))), relativist_loom, miri))]
mod membarrier {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn execute() {
        unreachable!("membarrier was never registered");
    }
}
