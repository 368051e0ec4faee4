//! The font of all pictures. It comes with the program, so that they look the same everywhere.

use std::sync::Once;

use plotters::style::{FontStyle, register_font};

/// Registers the font. The plotting library needs it before it draws.
pub fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for style in [FontStyle::Normal, FontStyle::Bold] {
            let registered = register_font("sans-serif", style, epaint_default_fonts::UBUNTU_LIGHT);
            assert!(registered.is_ok(), "the font is a font");
        }
    });
}
