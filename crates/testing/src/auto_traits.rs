//! A table of types and their auto traits.

use std::marker::PhantomData;

/// `Send`, but not `Sync`.
pub struct OnlySend(PhantomData<*const ()>);
// SAFETY: the type has no data.
unsafe impl Send for OnlySend {}

/// `Sync`, but not `Send`.
pub struct OnlySync(PhantomData<*const ()>);
// SAFETY: the type has no data.
unsafe impl Sync for OnlySync {}

/// `TYPE => + - + -,` for each type: whether it is `Send`, `Sync`, `UnwindSafe` and
/// `RefUnwindSafe`. A wrong line does not compile.
#[macro_export]
macro_rules! auto_traits {
    (@wanted +) => { true };
    (@wanted -) => { false };
    // The inherent constant takes precedence if its bound holds.
    (@check $type:ty, $trait:path, $wanted:tt) => {
        const _: () = {
            struct Probe<T>(std::marker::PhantomData<T>);
            #[allow(dead_code)]
            trait Otherwise {
                const HAS: bool = false;
            }
            impl<T> Otherwise for Probe<T> {}
            #[allow(dead_code)]
            impl<T: $trait> Probe<T> {
                const HAS: bool = true;
            }
            assert!(
                Probe::<$type>::HAS == $crate::auto_traits!(@wanted $wanted),
                concat!(stringify!($type), " should have been ", stringify!($wanted), stringify!($trait))
            );
        };
    };
    ($($type:ty => $send:tt $sync:tt $unwind_safe:tt $ref_unwind_safe:tt,)*) => { $(
        $crate::auto_traits!(@check $type, Send, $send);
        $crate::auto_traits!(@check $type, Sync, $sync);
        $crate::auto_traits!(@check $type, std::panic::UnwindSafe, $unwind_safe);
        $crate::auto_traits!(@check $type, std::panic::RefUnwindSafe, $ref_unwind_safe);
    )* };
}
