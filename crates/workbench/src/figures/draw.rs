//! Figures as SVG and PNG, from the same drawing.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::plan::{Curve, Figure};
use crate::fonts;
use crate::report::significant;

const SIZE: (u32, u32) = (720, 520);
const LINE: i32 = 16;

/// Of text and axes.
pub(crate) const INK: RGBColor = RGBColor(40, 44, 52);
/// Of lines behind the curves.
pub(crate) const GRID: RGBColor = RGBColor(232, 234, 238);

/// Distinguishable to the colour-blind (Okabe and Ito's palette), the most important first.
pub(crate) const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(160, 140, 20),
];

/// Draws a figure into the folder.
///
/// # Errors
/// When a picture can't be written.
pub fn draw(folder: &Path, figure: &Figure, curves: &[Curve], caption: &str) -> Result<()> {
    fonts::register();
    let svg = folder.join(format!("{}.svg", figure.file));
    let png = folder.join(format!("{}.png", figure.file));
    // The library's errors borrow the picture.
    let failed = |path: &Path, error: &dyn std::fmt::Display| anyhow!("cannot draw {}: {error}", path.display());
    draw_on(&SVGBackend::new(&svg, SIZE).into_drawing_area(), figure, curves, caption)
        .map_err(|error| failed(&svg, &error))?;
    draw_on(&BitMapBackend::new(&png, SIZE).into_drawing_area(), figure, curves, caption)
        .map_err(|error| failed(&png, &error))
}

/// What goes wrong while drawing.
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_on<B>(root: &DrawingArea<B, Shift>, figure: &Figure, curves: &[Curve], caption: &str) -> Drawn
where
    B: DrawingBackend,
    B::ErrorType: 'static,
{
    root.fill(&WHITE)?;
    let title = ("sans-serif", 19).into_font().style(FontStyle::Bold).color(&INK);
    root.draw(&Text::new(format!("{}: {}", figure.number, figure.title), (14, 12), title))?;
    let small = ("sans-serif", 12).into_font().color(&INK);
    let lines: Vec<&str> = caption.lines().collect();
    let below = LINE * lines.len() as i32 + 10;
    for (number, line) in lines.iter().enumerate() {
        let top = SIZE.1 as i32 - below + LINE * number as i32;
        root.draw(&Text::new(*line, (14, top), small.clone()))?;
    }
    let area = root.margin(40, below, 0, 0);
    let rates = || curves.iter().flat_map(|curve| &curve.points).map(|(_, rate)| rate);
    let highest = rates().map(|rate| rate.upper_quartile).fold(1.0, f64::max) / 1e6 * 1.05;
    if figure.logarithmic {
        let lowest = rates().map(|rate| rate.lower_quartile).fold(f64::INFINITY, f64::min) / 1e6;
        let lowest = if lowest > 0.0 && lowest < highest { lowest } else { highest / 1000.0 };
        let lowest = 10f64.powf(lowest.log10().floor());
        draw_chart(&area, curves, (lowest..highest).log_scale())
    } else {
        draw_chart(&area, curves, 0.0..highest)
    }
}

fn draw_chart<B, Y>(area: &DrawingArea<B, Shift>, curves: &[Curve], vertical: Y) -> Drawn
where
    B: DrawingBackend,
    B::ErrorType: 'static,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let most = curves.iter().flat_map(|curve| &curve.points).map(|(readers, _)| *readers).max().unwrap_or(1);
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most as f64 * 1.04, vertical)?;
    chart
        .configure_mesh()
        .x_desc("Reader threads")
        .y_desc("Lookups per second (millions)")
        .x_labels(most.min(16) + 1)
        .x_label_formatter(&|readers| format!("{readers:.0}"))
        .y_label_formatter(&|rate| significant_tick(*rate))
        .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
        .label_style(("sans-serif", 12).into_font().color(&INK))
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let points = || curve.points.iter().map(|(readers, rate)| (*readers as f64, rate));
        let style = colour.stroke_width(2);
        let line = LineSeries::new(points().map(|(x, rate)| (x, rate.median / 1e6)), style);
        chart
            .draw_series(line)?
            .label(&curve.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        chart.draw_series(points().map(|(x, rate)| Circle::new((x, rate.median / 1e6), 3, colour.filled())))?;
        chart.draw_series(points().map(|(x, rate)| {
            PathElement::new([(x, rate.lower_quartile / 1e6), (x, rate.upper_quartile / 1e6)], colour.stroke_width(1))
        }))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 13).into_font().color(&INK))
        .background_style(WHITE.mix(0.8))
        .border_style(GRID)
        .draw()?;
    area.present()?;
    Ok(())
}

/// As many digits as a tick needs.
pub(crate) fn significant_tick(value: f64) -> String {
    if value == 0.0 || value >= 10.0 { format!("{value:.0}") } else { significant(value) }
}
