//! The design. (Documentation only.)
