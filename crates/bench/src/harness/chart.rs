//! Draws line charts as SVG and as PNG.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::harness::fonts;
use crate::harness::report::significant;
use crate::harness::stats::Summary;

const SIZE: (u32, u32) = (720, 520);
const LINE: i32 = 16;

pub(crate) const INK: RGBColor = RGBColor(40, 44, 52);
pub(crate) const GRID: RGBColor = RGBColor(232, 234, 238);

/// Colours that colour-blind readers can distinguish (Okabe and Ito's palette), the first line's
/// first.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
    RGBColor(160, 140, 20),
];

/// Creates the output folder, so that failure is reported before the measurement.
pub fn prepare(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

/// The texts and axes of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Chart<'a> {
    pub title: &'a str,
    pub x_label: &'a str,
    pub y_label: &'a str,
    pub logarithmic: bool,
    /// The value of one unit of the vertical axis.
    pub unit: f64,
    pub caption: &'a str,
}

/// A line through medians, with bars for the quartiles.
#[derive(Clone, Debug)]
pub struct Line {
    pub label: String,
    pub points: Vec<(f64, Summary)>,
}

impl Chart<'_> {
    /// Draws `lines` into an SVG and a PNG file called `name` in the folder. Returns the SVG.
    pub fn draw(&self, folder: &Path, name: &str, lines: &[Line]) -> Result<String> {
        let svg = self.svg(lines)?;
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, &svg).with_context(|| format!("cannot write {}", path.display()))?;
        let path = folder.join(format!("{name}.png"));
        // Errors are formatted here, because the library's error types borrow the picture.
        self.draw_on(&BitMapBackend::new(&path, SIZE).into_drawing_area(), lines)
            .map_err(|error| anyhow!("cannot draw {}: {error}", path.display()))?;
        Ok(svg)
    }

    /// Draws `lines` as SVG.
    pub fn svg(&self, lines: &[Line]) -> Result<String> {
        fonts::register();
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = self.draw_on(&root, lines).map_err(|error| anyhow!("cannot draw {}: {error}", self.title));
        drop(root);
        drawn.map(|()| svg)
    }

    fn draw_on<B>(&self, root: &DrawingArea<B, Shift>, lines: &[Line]) -> Drawn
    where
        B: DrawingBackend,
        B::ErrorType: 'static,
    {
        root.fill(&WHITE)?;
        let title = ("sans-serif", 19).into_font().style(FontStyle::Bold).color(&INK);
        root.draw(&Text::new(self.title, (14, 12), title))?;
        let small = ("sans-serif", 12).into_font().color(&INK);
        let caption: Vec<&str> = self.caption.lines().collect();
        let below = LINE * caption.len() as i32 + 10;
        for (number, line) in caption.iter().enumerate() {
            let top = SIZE.1 as i32 - below + LINE * number as i32;
            root.draw(&Text::new(*line, (14, top), small.clone()))?;
        }
        let area = root.margin(40, below, 0, 0);
        let values = || lines.iter().flat_map(|line| &line.points).map(|(_, value)| value);
        let highest = values().map(|value| value.upper_quartile).fold(self.unit, f64::max) / self.unit * 1.05;
        if self.logarithmic {
            let lowest = values().map(|value| value.lower_quartile).fold(f64::INFINITY, f64::min) / self.unit;
            let lowest = if lowest > 0.0 && lowest < highest { lowest } else { highest / 1000.0 };
            let lowest = 10f64.powf(lowest.log10().floor());
            self.draw_lines(&area, lines, (lowest..highest).log_scale(), lowest)
        } else {
            self.draw_lines(&area, lines, 0.0..highest, 0.0)
        }
    }

    /// Draws axes, lines and legend. Points below `lowest` are drawn at `lowest`.
    fn draw_lines<B, Y>(&self, area: &DrawingArea<B, Shift>, lines: &[Line], vertical: Y, lowest: f64) -> Drawn
    where
        B: DrawingBackend,
        B::ErrorType: 'static,
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let (left, right) = horizontal(lines);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(left..right + 0.04 * (right - left), vertical)?;
        chart
            .configure_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_labels((right - left).min(16.0) as usize + 1)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| significant_tick(*y))
            .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .draw()?;
        for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
            let points = || line.points.iter();
            let y = |value: f64| (value / self.unit).max(lowest);
            let style = colour.stroke_width(2);
            let medians = LineSeries::new(points().map(|(x, value)| (*x, y(value.median))), style);
            chart
                .draw_series(medians)?
                .label(&line.label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            // Lines with many points need no marks.
            if line.points.len() <= 32 {
                chart.draw_series(points().map(|(x, value)| Circle::new((*x, y(value.median)), 3, colour.filled())))?;
            }
            chart.draw_series(points().map(|(x, value)| {
                PathElement::new([(*x, y(value.lower_quartile)), (*x, y(value.upper_quartile))], colour.stroke_width(1))
            }))?;
        }
        chart
            .configure_series_labels()
            .position(free_corner(lines, self.logarithmic))
            .label_font(("sans-serif", 13).into_font().color(&INK))
            .background_style(WHITE.mix(0.8))
            .border_style(GRID)
            .draw()?;
        area.present()?;
        Ok(())
    }
}

/// Returns the ends of the horizontal axis. It begins at zero, unless all points are far from zero.
fn horizontal(lines: &[Line]) -> (f64, f64) {
    let points = || lines.iter().flat_map(|line| &line.points).map(|(x, _)| *x);
    let (first, last) = (points().fold(f64::INFINITY, f64::min), points().fold(1.0, f64::max));
    if first > last / 2.0 && first < last { (first - 0.5, last) } else { (0.0, last) }
}

/// Returns the corner in which the legend hides the smallest part of the lines.
fn free_corner(lines: &[Line], logarithmic: bool) -> SeriesLabelPosition {
    use SeriesLabelPosition::{LowerLeft, LowerRight, UpperLeft, UpperRight};
    let scale = |value: f64| if logarithmic { value.max(1e-9).log10() } else { value };
    let points = || lines.iter().flat_map(|line| &line.points);
    let (left, right) = horizontal(lines);
    let top = points().map(|(_, value)| scale(value.upper_quartile)).fold(f64::NEG_INFINITY, f64::max);
    let lowest = points().map(|(_, value)| scale(value.lower_quartile)).fold(f64::INFINITY, f64::min);
    let bottom = if logarithmic { lowest.floor() } else { 0.0 };
    let place =
        |(x, value): &(f64, Summary)| ((x - left) / (right - left), (scale(value.median) - bottom) / (top - bottom));
    // The approximate share of the plot that the legend covers.
    let longest = lines.iter().map(|line| line.label.len()).max().unwrap_or(0);
    let width = (7.0 * longest as f64 + 50.0) / f64::from(SIZE.0);
    let height = (20.0 * lines.len() as f64 + 20.0) / 400.0;
    let is_hidden = |corner: SeriesLabelPosition, x: f64, y: f64| {
        (if matches!(corner, UpperLeft | LowerLeft) { x < width } else { x > 1.0 - width })
            && (if matches!(corner, LowerLeft | LowerRight) { y < height } else { y > 1.0 - height })
    };
    let hidden = |corner: &SeriesLabelPosition| {
        let steps = lines.iter().flat_map(|line| line.points.windows(2)).flat_map(|ends| {
            let ((x0, y0), (x1, y1)) = (place(&ends[0]), place(&ends[1]));
            (0..=16)
                .map(move |step| f64::from(step) / 16.0)
                .map(move |part| (x0 + part * (x1 - x0), y0 + part * (y1 - y0)))
        });
        steps.filter(|&(x, y)| is_hidden(corner.clone(), x, y)).count()
    };
    [UpperLeft, LowerRight, UpperRight, LowerLeft].into_iter().min_by_key(hidden).unwrap_or(UpperLeft)
}

pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Formats the number of a tick, without trailing zeros.
fn significant_tick(value: f64) -> String {
    let text = if value >= 10.0 { format!("{value:.0}") } else { significant(value) };
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_have_the_digits_that_they_need() {
        for (value, text) in [(0.0, "0"), (5.0, "5"), (0.5, "0.5"), (2.25, "2.25"), (25.0, "25"), (100.0, "100")] {
            assert_eq!(significant_tick(value), text);
        }
    }

    #[test]
    fn a_legend_hides_no_line_where_there_is_room() {
        let line = |values: [f64; 3]| Line {
            label: "some table".into(),
            points: (0..3).map(|n| (8.0 * f64::from(n), Summary::of(vec![values[n as usize]]).unwrap())).collect(),
        };
        let corner = |values| free_corner(&[line(values)], false);
        assert!(matches!(corner([100.0, 100.0, 100.0]), SeriesLabelPosition::LowerRight));
        assert!(matches!(corner([0.0, 1.0, 100.0]), SeriesLabelPosition::UpperLeft));
        assert!(matches!(
            corner([100.0, 100.0, 1.0]),
            SeriesLabelPosition::UpperRight | SeriesLabelPosition::LowerLeft
        ));
    }
}
