//! Tests that run in processes of their own.

use std::env;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use relativist_testing::alone;

static RUNS: AtomicU32 = AtomicU32::new(0);

#[test]
fn runs_in_another_process() {
    // Relaxed: each process uses it in one thread.
    alone(|| _ = RUNS.fetch_add(1, Relaxed));
    let runs = u32::from(env::var_os("RELATIVIST_TEST_ALONE").is_some());
    assert_eq!(RUNS.load(Relaxed), runs, "only the other process runs the body");
}

mod inner {
    use super::*;

    #[test]
    fn failures_are_reported() {
        let failure = catch_unwind(|| alone(|| panic!("the body fails"))).expect_err("the process fails");
        // The other process reports the panic of the body itself.
        if env::var_os("RELATIVIST_TEST_ALONE").is_none() {
            let message = failure.downcast_ref::<String>().expect("a formatted message");
            assert!(message.contains("the body fails"), "{message}");
        } else {
            std::panic::resume_unwind(failure);
        }
    }

    fn outside_of_a_test() {
        alone(|| {});
    }

    #[test]
    fn names_that_are_no_test_are_reported() {
        let failure = catch_unwind(outside_of_a_test).expect_err("there is no such test");
        let message = failure.downcast_ref::<String>().expect("a formatted message");
        assert!(message.contains("outside_of_a_test is no test"), "{message}");
    }
}
