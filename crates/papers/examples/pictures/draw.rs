//! Draws a film as an SVG, with its moments one below the other.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::film::{Film, Moment, Plan, heads, links};

const WIDTH: i32 = 760;
/// The maximum length of a line in captions, because an SVG does not wrap text.
const CHARACTERS: usize = 100;
const LINE: i32 = 18;
/// The distance from one bucket of the larger array down to the next, and from one entry to the
/// next.
const LANE: i32 = 52;
const COLUMN: i32 = 80;
const RADIUS: i32 = 17;
/// The positions of the boxes of the published array, of the boxes of the array that is left
/// behind, and of entries.
const PUBLISHED: i32 = 120;
const LEFT_BEHIND: i32 = 20;
const ENTRIES: i32 = 250;
const BOX: (i32, i32) = (44, 20);

type Point = (i32, i32);

pub fn svg(film: &Film) -> String {
    let mut bottom = 0;
    let frames: Vec<Markup> =
        (b'a'..).zip(&film.moments).map(|(letter, moment)| frame(film, letter, moment, &mut bottom)).collect();
    let markup = html! {
        svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox={ "0 0 " (WIDTH) " " (bottom) }
            font-family="sans-serif" font-size="14"
        {
            title { (film.title) }
            defs {
                marker id="arrow" viewBox="0 0 10 10" refX="10" refY="5" markerWidth="8" markerHeight="8" orient="auto" {
                    path d="M 0 1 L 10 5 L 0 9 z" {}
                }
            }
            rect width="100%" height="100%" fill="white" {}
            @for frame in frames { (frame) }
        }
    };
    markup.into_string() + "\n"
}

fn frame(film: &Film, letter: u8, moment: &Moment, bottom: &mut i32) -> Markup {
    let lines = wrapped(&format!("({}) {}", letter as char, moment.caption));
    let (top, above) = (*bottom, LINE * lines.len() as i32 + 24);
    *bottom += above + LANE * film.plan.buckets as i32;
    let order = order(film);
    let at = |key: u64| {
        let column = order.iter().position(|&its| its == key).expect("entries stay") as i32;
        (ENTRIES + COLUMN * column, lane((film.plan.bucket)(key)))
    };
    html! {
        g transform={ "translate(0 " (top) ")" } {
            @for (number, line) in (1..).zip(&lines) {
                text x="12" y=(6 + LINE * number) { (line) }
            }
            g transform={ "translate(0 " (above) ")" } {
                @if let Some(first) = &moment.left_behind {
                    (array(&film.plan, LEFT_BEHIND, first, true, at))
                }
                (array(&film.plan, PUBLISHED, &heads(&moment.chains), false, at))
                @for (from, to) in links(&moment.chains) {
                    (arrow(at(from), at(to), RADIUS, None))
                }
                @for &key in &order {
                    (entry(&film.plan, key, at(key), &moment.readers))
                }
            }
        }
    }
}

/// Returns the entries from left to right, in the order of the chains when there are fewest.
fn order(film: &Film) -> Vec<u64> {
    let coarsest = film.moments.iter().min_by_key(|moment| moment.chains.len());
    coarsest.expect("a moment").chains.concat()
}

fn lane(bucket: usize) -> i32 {
    LANE * bucket as i32 + LANE / 2
}

/// Draws the heads of an array, each in the lane of the entry to which it leads.
fn array(plan: &Plan, x: i32, first: &[Option<u64>], is_left_behind: bool, at: impl Fn(u64) -> Point + Copy) -> Markup {
    let (width, height) = BOX;
    // Arrows of the array that is left behind pass above the boxes of the other.
    let lift = if is_left_behind { LANE / 2 } else { 0 };
    let dashes = is_left_behind.then_some("4 3");
    html! {
        @for (bucket, &first) in first.iter().enumerate() {
            @let y = lane(first.map_or(bucket, plan.bucket)) - lift;
            rect x=(x) y=(y - height / 2) width=(width) height=(height) fill="white" stroke="black"
                stroke-dasharray=[dashes] {}
            text x=(x + width / 2) y=(y + 5) text-anchor="middle" { (bucket) }
            @if let Some(key) = first {
                (arrow((x + width, y), at(key), 0, dashes))
            }
        }
    }
}

/// Draws an arrow from a point, or from the edge of a circle of this radius around it, to the edge
/// of an entry.
fn arrow(from: Point, to: Point, radius: i32, dashes: Option<&str>) -> Markup {
    let (dx, dy) = (f64::from(to.0 - from.0), f64::from(to.1 - from.1));
    let length = dx.hypot(dy);
    let along = |from: i32, d: f64, by: f64| format!("{:.1}", f64::from(from) + d / length * by);
    let (begin, end) = (f64::from(radius), length - f64::from(RADIUS));
    html! {
        line x1=(along(from.0, dx, begin)) y1=(along(from.1, dy, begin)) x2=(along(from.0, dx, end))
            y2=(along(from.1, dy, end)) stroke="black" stroke-dasharray=[dashes] marker-end="url(#arrow)" {}
    }
}

/// Draws an entry: white or black by its bucket in the larger array, or grey if readers of other
/// buckets may be at it.
fn entry(plan: &Plan, key: u64, (x, y): Point, readers: &[BTreeSet<u64>]) -> Markup {
    let own = (plan.bucket)(key);
    let others = readers.iter().enumerate().any(|(reader, positions)| reader != own && positions.contains(&key));
    let (fill, ink) = match own % 2 {
        _ if others => ("#b8b8b8", "black"),
        0 => ("white", "black"),
        _ => ("black", "white"),
    };
    html! {
        circle cx=(x) cy=(y) r=(RADIUS) fill=(fill) stroke="black" {}
        text x=(x) y=(y + 5) text-anchor="middle" fill=(ink) { ((plan.label)(key)) }
    }
}

fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("one at least");
        if line.len() + word.len() >= CHARACTERS {
            lines.push(word.into());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines
}
