//! A watchdog for test programs: it ends a program that runs for too long, and prints the stacks of
//! all its threads.
//!
//! It starts by itself in each program that links this crate. It is a kernel timer, not a thread,
//! because a thread would disturb tests of fork, signals or threads. When the timer expires, its
//! signal goes to the main thread. The handler there sends the same signal to one thread after
//! another, and each prints its own stack and its name, which is that of its test. Then the handler
//! aborts the program.
//!
//! The handlers allocate and take locks to print symbols, which signal handlers must not do in
//! general. A thread that was interrupted in the allocator cannot answer: after 30 seconds the main
//! thread goes on to the next one. If the main thread gets stuck itself, `alarm` ends the program.

use std::backtrace::Backtrace;
use std::env;
use std::fs::{File, read_dir, read_to_string};
use std::io::Write;
use std::mem::{ManuallyDrop, zeroed};
use std::os::fd::FromRawFd;
use std::process::abort;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::thread;
use std::time::Duration;

/// The environment variable that sets how many seconds a test program may run. The default is
/// generous, because on a busy machine tests take ten times as long as on an idle one.
pub(crate) const VARIABLE: &str = "RELATIVIST_TEST_SECONDS";
const DEFAULT: u64 = 600;

/// The time limits of one thread that prints its stack, and of the whole report, in seconds.
const ANSWER: u64 = 30;
const REPORT: u32 = 300;

static EXPIRED: AtomicBool = AtomicBool::new(false);
static ANSWERS: AtomicU32 = AtomicU32::new(0);
static BOUND_MILLISECONDS: AtomicU64 = AtomicU64::new(0);

// Miri has neither timers nor signals.
#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

/// Runs before `main`.
#[cfg(not(miri))]
extern "C" fn start() {
    watch(bound());
}

/// Returns how long this program may run.
pub(crate) fn bound() -> Duration {
    let seconds = env::var(VARIABLE).map_or(DEFAULT, |text| text.parse().expect("a number of seconds"));
    Duration::from_secs(seconds)
}

fn signal() -> i32 {
    libc::SIGRTMIN() + 10
}

/// Aborts this program after `bound`. Each call starts another timer; the first one that expires
/// ends the program.
pub fn watch(bound: Duration) {
    // Relaxed: for the message only.
    BOUND_MILLISECONDS.store(bound.as_millis() as u64, Relaxed);
    let handler: extern "C" fn(i32) = on_signal;
    // SAFETY: all-zero bytes are valid values of these structures. The pointers are to values that
    // live during the calls, and the handler has the type that `sigaction` without SA_SIGINFO asks
    // for.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handler as usize;
        action.sa_flags = libc::SA_RESTART;
        let handled = libc::sigaction(signal(), &action, null_mut());

        let mut event: libc::sigevent = zeroed();
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        event.sigev_notify_thread_id = libc::getpid();
        let mut timer: libc::timer_t = zeroed();
        let created = libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer);

        let mut once: libc::itimerspec = zeroed();
        once.it_value.tv_sec = bound.as_secs() as libc::time_t;
        once.it_value.tv_nsec = bound.subsec_nanos().into();
        let set = created == 0 && libc::timer_settime(timer, 0, &once, null_mut()) == 0;
        assert!(handled == 0 && set, "the watchdog cannot start");
    }
}

extern "C" fn on_signal(_signal: i32) {
    // Relaxed: the first signal sets this before the handler sends any other.
    if EXPIRED.swap(true, Relaxed) {
        print_stack();
        // Release: pairs with the Acquire in `ask`, so that stacks are printed one after another.
        ANSWERS.fetch_add(1, Release);
    } else {
        report();
    }
}

fn report() -> ! {
    // SAFETY: plain system calls. The first two make SIGALRM end the program if the report hangs.
    let (process, own) = unsafe {
        libc::signal(libc::SIGALRM, libc::SIG_DFL);
        libc::alarm(REPORT);
        (libc::getpid(), libc::gettid())
    };
    // Relaxed: a number for the message.
    let bound = Duration::from_millis(BOUND_MILLISECONDS.load(Relaxed));
    let program = env::current_exe().unwrap_or_default();
    say(&format!("\nwatchdog: {} did not end within {bound:?}. All its threads:\n", program.display()));
    let threads = read_dir("/proc/self/task").into_iter().flatten().flatten();
    for thread in threads.filter_map(|thread| thread.file_name().to_str()?.parse::<i32>().ok()) {
        if thread != own && !ask(process, thread) {
            let name = read_to_string(format!("/proc/self/task/{thread}/comm")).unwrap_or_default();
            say(&format!("watchdog: thread {thread}, {}, does not answer\n", name.trim_end()));
        }
    }
    print_stack();
    say("watchdog: aborting\n");
    abort();
}

/// Makes a thread print its stack. Returns false if the thread lives but does not do so in time.
fn ask(process: i32, thread: i32) -> bool {
    // SAFETY: a plain system call. The handler is installed. Signal 0 is not delivered: it only
    // checks that the thread exists.
    let send = |signal: i32| unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) } == 0;
    // Acquire, here and below: pairs with the Release in `on_signal`.
    let before = ANSWERS.load(Acquire);
    if !send(signal()) {
        return true;
    }
    (0..ANSWER * 100).any(|_| {
        // SAFETY: the first pointer is to a value that lives during the call; the second may be
        // null.
        unsafe { libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 }, null_mut()) };
        ANSWERS.load(Acquire) != before || !send(0)
    })
}

fn print_stack() {
    let thread = thread::current();
    // SAFETY: a plain system call.
    let number = unsafe { libc::gettid() };
    let name = thread.name().unwrap_or("without a name");
    say(&format!("watchdog: thread {number}, {name}:\n{}\n", Backtrace::force_capture()));
}

/// Writes to standard error without its lock, which an interrupted thread may hold, and without the
/// test harness, which captures output.
fn say(text: &str) {
    // SAFETY: standard error stays open, since the file is never dropped.
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
    // A failure cannot be reported anywhere.
    _ = stderr.write_all(text.as_bytes());
}
