//! Draws line charts as SVG.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use maud::{Markup, html};

use crate::harness::report::significant;
use crate::harness::stats::Summary;

/// The size of a chart, and the edges of the plot in it.
const SIZE: (usize, usize) = (720, 520);
const LEFT: f64 = 70.0;
const RIGHT: f64 = 700.0;
const TITLE: f64 = 40.0;
const LINE: usize = 16;

/// Colours that colour-blind readers can distinguish (Okabe and Ito's palette), the first line's
/// first.
const COLOURS: [&str; 8] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5a5a5a", "#a08c14"];

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

/// Where values are in the plot.
struct Axes {
    logarithmic: bool,
    unit: f64,
    x: (f64, f64),
    y: (f64, f64),
    top: f64,
    bottom: f64,
}

impl Axes {
    /// Makes axes for these lines. The horizontal one begins at zero, unless all points are far
    /// from zero.
    fn of(chart: &Chart<'_>, lines: &[Line]) -> Self {
        let points = || lines.iter().flat_map(|line| &line.points);
        let (first, last) =
            points().map(|point| point.0).fold((f64::INFINITY, 1.0_f64), |(a, b), x| (a.min(x), b.max(x)));
        let x = if first > last / 2.0 && first < last { (first - 0.5, last) } else { (0.0, last) };
        let ends = points().map(|(_, value)| (value.lower_quartile / chart.unit, value.upper_quartile / chart.unit));
        let (low, high) = ends.fold((f64::INFINITY, 0.0_f64), |(low, high), (a, b)| (low.min(a), high.max(b)));
        let high = if high > 0.0 { high * 1.05 } else { 1.0 };
        let low = if low > 0.0 && low < high { low } else { high / 1000.0 };
        let y = if chart.logarithmic { (10f64.powf(low.log10().floor()), high) } else { (0.0, high) };
        let legend = LINE * lines.len().div_ceil(2);
        let below = LINE * (chart.caption.lines().count() + 3);
        let (top, bottom) = (TITLE + legend as f64, (SIZE.1 - below) as f64);
        Self { logarithmic: chart.logarithmic, unit: chart.unit, x, y, top, bottom }
    }

    fn left(&self, x: f64) -> f64 {
        LEFT + (x - self.x.0) / (self.x.1 - self.x.0) * (RIGHT - LEFT)
    }

    /// Returns the height of a value. One below the axis is drawn at its end.
    fn height(&self, value: f64) -> f64 {
        let scale = |value: f64| if self.logarithmic { value.log10() } else { value };
        let (low, high) = (scale(self.y.0), scale(self.y.1));
        let value = scale((value / self.unit).max(self.y.0));
        self.bottom - (value - low) / (high - low) * (self.bottom - self.top)
    }

    /// Returns the values of the ticks of the vertical axis.
    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let decades = (self.y.0.log10() as i32)..=(self.y.1.log10().floor() as i32);
            decades.map(|decade| 10f64.powi(decade)).collect()
        } else {
            steps(self.y)
        }
    }
}

/// Returns round numbers from the first to the last: at most eleven.
fn steps((first, last): (f64, f64)) -> Vec<f64> {
    let decade = 10f64.powf(((last - first) / 10.0).log10().ceil());
    let step = [0.2, 0.5, 1.0].map(|part| part * decade).into_iter().find(|step| (last - first) / step <= 10.0);
    let step = step.unwrap_or(decade);
    let numbers = (first / step).ceil() as i64..=(last / step).floor() as i64;
    numbers.map(|number| number as f64 * step).collect()
}

impl Chart<'_> {
    /// Draws `lines` into an SVG file called `name` in the folder. Returns the SVG.
    pub fn draw(&self, folder: &Path, name: &str, lines: &[Line]) -> Result<String> {
        let svg = self.svg(lines)?;
        let path = folder.join(format!("{name}.svg"));
        fs::write(&path, &svg).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(svg)
    }

    /// Draws `lines` as SVG.
    pub fn svg(&self, lines: &[Line]) -> Result<String> {
        let axes = Axes::of(self, lines);
        let (middle, caption) = ((axes.top + axes.bottom) / 2.0, axes.bottom as usize + 3 * LINE);
        let markup = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 0 " (SIZE.0) " " (SIZE.1) }
                font-family="sans-serif" font-size="12" fill="#282c34" {
                rect width="100%" height="100%" fill="white" {}
                text x="14" y="24" font-size="16" font-weight="bold" { (self.title) }
                (grid(&axes))
                text x=((LEFT + RIGHT) / 2.0) y=(axes.bottom + 34.0) text-anchor="middle" { (self.x_label) }
                text transform={ "translate(16 " (middle) ") rotate(-90)" } text-anchor="middle" { (self.y_label) }
                @for (place, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
                    (draw_line(&axes, line, colour))
                    @let (x, y) = (LEFT as usize + place % 2 * 320, 40 + place / 2 * LINE);
                    rect x=(x) y=(y - 4) width="18" height="2" fill=(colour) {}
                    text x=(x + 24) y=(y) { (line.label) }
                }
                @for (number, line) in self.caption.lines().enumerate() {
                    text x="14" y=(caption + number * LINE) { (line) }
                }
            }
        };
        Ok(markup.into_string())
    }
}

/// Draws the axes, and a line for each tick.
fn grid(axes: &Axes) -> Markup {
    html! {
        @for value in axes.ticks() {
            @let y = axes.height(value * axes.unit);
            line x1=(LEFT) x2=(RIGHT) y1=(y) y2=(y) stroke="#e8eaee" {}
            text x=(LEFT - 6.0) y=(y + 4.0) text-anchor="end" { (significant_tick(value)) }
        }
        @for value in steps(axes.x) {
            @let x = axes.left(value);
            line x1=(x) x2=(x) y1=(axes.top) y2=(axes.bottom) stroke="#e8eaee" {}
            text x=(x) y=(axes.bottom + 16.0) text-anchor="middle" { (significant_tick(value)) }
        }
        path d={ "M" (LEFT) " " (axes.top) "V" (axes.bottom) "H" (RIGHT) } fill="none" stroke="#282c34" {}
    }
}

fn draw_line(axes: &Axes, line: &Line, colour: &str) -> Markup {
    let medians = line.points.iter().map(|(x, value)| format!("{:.1},{:.1}", axes.left(*x), axes.height(value.median)));
    html! {
        polyline points=(medians.collect::<Vec<_>>().join(" ")) fill="none" stroke=(colour) stroke-width="2" {}
        @for (x, value) in &line.points {
            @let (x, y) = (axes.left(*x), axes.height(value.median));
            // Lines with many points need no marks.
            @if line.points.len() <= 32 { circle cx=(x) cy=(y) r="3" fill=(colour) {} }
            @let (low, high) = (axes.height(value.lower_quartile), axes.height(value.upper_quartile));
            line x1=(x) x2=(x) y1=(low) y2=(high) stroke=(colour) {}
        }
    }
}

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
    fn values_are_where_the_axes_say() {
        let point = |x, value| (x, Summary::of([value]).unwrap());
        let line = Line { label: "a <table>".into(), points: vec![point(0.0, 10e3), point(8.0, 1000e3)] };
        let chart = Chart { title: "t", x_label: "x", y_label: "y", logarithmic: true, unit: 1e3, caption: "c" };
        let axes = Axes::of(&chart, std::slice::from_ref(&line));
        assert_eq!((axes.left(0.0), axes.left(8.0), axes.height(10e3)), (LEFT, RIGHT, axes.bottom));
        assert_eq!((axes.height(1.0), axes.ticks()), (axes.bottom, vec![10.0, 100.0, 1000.0]));
        assert!(axes.height(1000e3) > axes.top && axes.height(1000e3) < axes.top + 10.0);
        let svg = chart.svg(&[line]).unwrap();
        assert!(svg.contains("a &lt;table&gt;") && svg.matches("<circle").count() == 2, "{svg}");
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!(steps((0.0, 8.4)), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        assert_eq!(steps((0.0, 105.0)), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(steps((9.5, 12.0)), [9.5, 10.0, 10.5, 11.0, 11.5, 12.0]);
    }
}
