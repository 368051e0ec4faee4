//! Draws a figure as SVG.

use std::path::Path;

use anyhow::Result;

use relativist_bench::harness::chart::{Chart, Line};

/// The texts and axes of a figure.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub file: &'static str,
    /// The number of the figure in the paper.
    pub number: &'static str,
    pub title: &'static str,
    pub x: &'static str,
    pub y: &'static str,
    /// The value of one unit of the vertical axis.
    pub unit: f64,
    /// Whether the vertical axis is logarithmic.
    pub logarithmic: bool,
}

/// Draws a figure into files in the folder. Returns the SVG.
pub fn draw(folder: &Path, figure: &Frame, lines: &[Line], caption: &str) -> Result<String> {
    let &Frame { file, number, title, x, y, unit, logarithmic } = figure;
    let title = &format!("{number}: {title}");
    Chart { title, x_label: x, y_label: y, logarithmic, unit, caption }.draw(folder, file, lines)
}
