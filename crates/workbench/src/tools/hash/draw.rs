//! Draws the pictures of a section as SVG.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::section::{Row, Section};
use crate::harness::chart::{COLOURS, Drawn, GRID, INK, significant_tick};
use crate::harness::fonts;

const SIZE: (u32, u32) = (720, 420);

/// The lower end of the axis of hashing costs in nanoseconds. Faster functions are drawn there.
const FASTEST: f64 = 0.125;

/// A picture and the name of its file, without extension.
#[derive(Debug)]
pub struct Picture {
    pub name: &'static str,
    pub svg: String,
}

struct Chart {
    name: &'static str,
    title: String,
    x: &'static str,
    y: &'static str,
    series: Vec<Series>,
    logarithmic: bool,
}

struct Series {
    label: String,
    points: Vec<(f64, f64)>,
    mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    /// A line with dots, explained in a legend.
    Line,
    /// Labelled dots, on a base-2 logarithmic axis.
    Labelled,
}

/// Draws three pictures of a section: bucket sizes compared with those of a random function,
/// entries visited by table size, and cost against quality.
pub fn pictures(section: &Section) -> Result<Vec<Picture>> {
    fonts::register();
    let charts = [sizes(section), probes(section), costs(section)];
    charts.into_iter().flatten().map(|chart| chart.draw()).collect()
}

fn sizes(section: &Section) -> Option<Chart> {
    let advised = section.advised()?;
    let worst = section.worst().filter(|worst| worst.function != advised.function);
    let load = advised.histogram.load();
    // Larger sizes are cut off: the long tail of a poor function would leave little room for the
    // others.
    let last = (load + 5.0 * load.sqrt() + 3.0) as usize;
    let of = |row: &Row| Series {
        label: format!("{}, largest {}", row.function, row.largest),
        points: (0..=last)
            .map(|size| (size as f64, row.histogram.sizes.get(size).copied().unwrap_or(0) as f64))
            .collect(),
        mark: Mark::Line,
    };
    let random = Series {
        label: "a random function (Poisson)".into(),
        points: (0..=last).map(|size| (size as f64, advised.histogram.expected(size as u64))).collect(),
        mark: Mark::Line,
    };
    Some(Chart {
        name: "sizes",
        title: format!("Bucket sizes with 2^{} buckets", advised.bits),
        x: "Entries in a bucket",
        y: "Buckets",
        series: [of(advised), random].into_iter().chain(worst.map(of)).collect(),
        logarithmic: false,
    })
}

/// Returns the functions whose lookups in tables of this size visit the fewest entries, and those
/// that visit the most.
fn outstanding(section: &Section, bits: u32) -> Vec<&str> {
    let mut rows: Vec<&Row> = section.rows.iter().filter(|row| row.bits == bits).collect();
    rows.sort_by(|one, other| one.probes_per_miss.total_cmp(&other.probes_per_miss));
    let (few, most) = (rows.len().min(4), rows.len().saturating_sub(3).max(rows.len().min(4)));
    rows[..few].iter().chain(&rows[most..]).map(|row| row.function.as_str()).collect()
}

fn probes(section: &Section) -> Option<Chart> {
    let bits = section.advice.as_ref()?.bits;
    let points = |function: &str| {
        let rows = section.rows.iter().filter(|row| row.function == function);
        rows.map(|row| (f64::from(row.bits), row.probes_per_miss)).collect()
    };
    let functions = outstanding(section, bits).into_iter();
    let mut series: Vec<Series> = functions
        .map(|function| Series { label: function.into(), points: points(function), mark: Mark::Line })
        .collect();
    let random =
        section.sizes().map(|rows| (f64::from(rows[0].bits), section.keys as f64 / 2f64.powi(rows[0].bits as i32)));
    series.insert(0, Series { label: "a random function".into(), points: random.collect(), mark: Mark::Line });
    Some(Chart {
        name: "probes",
        title: "Entries that a miss visits, by table size".into(),
        x: "Buckets (logarithm to base 2)",
        y: "Entries",
        series,
        logarithmic: true,
    })
}

fn costs(section: &Section) -> Option<Chart> {
    let advised = section.advised()?;
    let rows = section.rows.iter().filter(|row| row.bits == advised.bits);
    let series = rows.map(|row| Series {
        label: row.function.clone(),
        points: vec![(row.hash_ns.max(FASTEST).log2(), row.probes_per_miss / row.histogram.load())],
        mark: Mark::Labelled,
    });
    Some(Chart {
        name: "costs",
        title: format!("Cost against quality with 2^{} buckets: lower left is better", advised.bits),
        x: "Nanoseconds to hash a key",
        y: "Entries visited / those of a random function",
        series: series.collect(),
        logarithmic: true,
    })
}

impl Chart {
    fn draw(self) -> Result<Picture> {
        let mut svg = String::new();
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = self.draw_on(&root).map_err(|error| anyhow!("cannot draw {}: {error}", self.name));
        drop(root);
        drawn?;
        Ok(Picture { name: self.name, svg })
    }

    fn draw_on(&self, root: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        root.fill(&WHITE)?;
        let title = ("sans-serif", 17).into_font().style(FontStyle::Bold).color(&INK);
        root.draw(&Text::new(self.title.clone(), (14, 10), title))?;
        let area = root.margin(30, 0, 0, 0);
        let heights = || self.series.iter().flat_map(|series| &series.points).map(|(_, y)| *y);
        let highest = heights().fold(0.0, f64::max).max(1e-3) * 1.1;
        if self.logarithmic {
            let lowest = heights().filter(|y| *y > 0.0).fold(highest, f64::min) / 2.0;
            self.draw_axes(&area, (lowest..highest * 2.0).log_scale(), lowest)
        } else {
            self.draw_axes(&area, 0.0..highest, 0.0)
        }
    }

    /// Draws the axes and the series. Points below `lowest` are drawn at `lowest`.
    fn draw_axes<Y>(&self, area: &DrawingArea<SVGBackend<'_>, Shift>, vertical: Y, lowest: f64) -> Drawn
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let widths = || self.series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
        let (from, to) = (widths().fold(f64::INFINITY, f64::min), widths().fold(f64::NEG_INFINITY, f64::max));
        let width = (to - from).max(1.0);
        // Leaves room for names on the right.
        let (edge, room) = (width * 0.04, width * 0.35);
        let has_lines = self.series.iter().any(|series| series.mark == Mark::Line);
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(40)
            .y_label_area_size(64)
            .build_cartesian_2d(from - edge..to + room, vertical)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .x_labels(if has_lines { (width + room).min(24.0) as usize + 1 } else { 10 })
            .x_label_formatter(&|x| match *x {
                x if x > to + edge => String::new(),
                x if has_lines => format!("{x:.0}"),
                logarithm => significant_tick(logarithm.exp2()),
            })
            .y_label_formatter(&|y| significant_tick(*y))
            .axis_desc_style(("sans-serif", 14).into_font().color(&INK))
            .label_style(("sans-serif", 12).into_font().color(&INK))
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .draw()?;
        self.draw_points(&mut chart, lowest)?;
        if has_lines {
            chart
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperRight)
                .label_font(("sans-serif", 13).into_font().color(&INK))
                .background_style(WHITE.mix(0.8))
                .border_style(GRID)
                .draw()?;
        }
        area.present()?;
        Ok(())
    }

    fn draw_points<Y>(
        &self,
        chart: &mut ChartContext<'_, SVGBackend<'_>, Cartesian2d<plotters::coord::types::RangedCoordf64, Y>>,
        lowest: f64,
    ) -> Drawn
    where
        Y: Ranged<ValueType = f64>,
    {
        let mut labels = Labels::default();
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let points = || series.points.iter().map(|(x, y)| (*x, y.max(lowest)));
            chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
            match series.mark {
                Mark::Line => {
                    let style = colour.stroke_width(2);
                    chart
                        .draw_series(LineSeries::new(points(), style))?
                        .label(&series.label)
                        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
                }
                Mark::Labelled => {
                    let small = ("sans-serif", 11).into_font().color(&INK);
                    for point in points() {
                        let place = labels.place(chart.backend_coord(&point), series.label.len());
                        let label = |below| {
                            EmptyElement::at(point) + Text::new(series.label.clone(), (6, below), small.clone())
                        };
                        chart.draw_series(place.map(label))?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The positions and widths of earlier labels, in pixels.
#[derive(Default)]
struct Labels(Vec<(i32, i32, i32)>);

impl Labels {
    /// Returns how far below a point a label of this length fits; `None` if there is no room
    /// nearby.
    fn place(&mut self, (x, y): (i32, i32), letters: usize) -> Option<i32> {
        const HEIGHT: i32 = 11;
        const LETTER: i32 = 6;
        let width = LETTER * letters as i32;
        let is_free = |below: &i32| {
            let apart = |(left, top, wide): &(i32, i32, i32)| {
                x + width <= *left || left + wide <= x || (y + below - top).abs() >= HEIGHT
            };
            self.0.iter().all(apart)
        };
        // Tries next to the point, then above and below in turn.
        let mut places = (0..4).map(|step| HEIGHT * if step % 2 == 0 { -step / 2 } else { step / 2 + 1 } - HEIGHT / 2);
        let below = places.find(is_free)?;
        self.0.push((x, y + below, width));
        Some(below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_points_side_by_side_are_apart() {
        let mut labels = Labels::default();
        let tops: Vec<i32> = [100, 103, 106, 109].into_iter().filter_map(|x| labels.place((x, 50), 10)).collect();
        assert_eq!(tops.len(), 4);
        for (place, one) in tops.iter().enumerate() {
            assert!(tops[place + 1..].iter().all(|other| (one - other).abs() >= 11), "{tops:?}");
        }
        assert_eq!(labels.place((112, 50), 10), None, "too many");
        assert_eq!(labels.place((300, 50), 10), Some(tops[0]), "far off there is room");
    }
}
