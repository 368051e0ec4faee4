//! The paper's figures as charts.

use std::path::Path;

use anyhow::Result;

use super::plan::{Curve, Figure};
use crate::chart::{Chart, Line};

/// Draws a figure into the folder.
///
/// # Errors
/// When a picture can't be written.
pub fn draw(folder: &Path, figure: &Figure, curves: &[Curve], caption: &str) -> Result<()> {
    let chart = Chart {
        title: &format!("{}: {}", figure.number, figure.title),
        x_label: "Reader threads",
        y_label: "Lookups per second (millions)",
        logarithmic: figure.logarithmic,
        unit: 1e6,
        caption,
    };
    let points = |curve: &Curve| curve.points.iter().map(|&(readers, rate)| (readers as f64, rate)).collect();
    let lines: Vec<_> = curves.iter().map(|curve| Line { label: curve.label.clone(), points: points(curve) }).collect();
    chart.draw(folder, figure.file, &lines)
}
