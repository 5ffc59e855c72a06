//! A plot for each number of clients: every row's ratios to native, on a logarithmic axis.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::results::Results;
use crate::rows::Row;

const LINE: i32 = 22;
const LEFT: i32 = 300;
const WIDTH: i32 = 1000;
const TOP: i32 = 70;

/// Who is drawn in which colour: the first that begins a configuration's name. Colours differ in print
/// and for most eyes that do not see all colours.
const COLOURS: [(&str, RGBColor); 7] = [
    ("bickford-base", RGBColor(150, 150, 150)),
    ("bickford", RGBColor(213, 94, 0)),
    ("libfuse", RGBColor(0, 114, 178)),
    ("fuser", RGBColor(0, 158, 115)),
    ("fuse-backend-rs", RGBColor(204, 121, 167)),
    ("fuse3", RGBColor(230, 159, 0)),
    ("go-fuse", RGBColor(86, 180, 233)),
];

fn colour(name: &str) -> RGBColor {
    let found = COLOURS.iter().find(|(start, _)| name.starts_with(start));
    found.map_or(BLACK, |(_, colour)| *colour)
}

/// Numbers of clients that were measured.
pub(super) fn clients(results: &Results) -> Vec<usize> {
    let mut all: Vec<usize> = results
        .places()
        .iter()
        .map(|(_, clients)| *clients)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Median, least and most of a configuration in a line of the plot.
struct Mark {
    name: String,
    ratios: [f64; 3],
}

fn marks(results: &Results, row: &Row, clients: usize) -> Vec<Mark> {
    let Some(native) = results.cell(row, clients, "native") else {
        return Vec::new();
    };
    let others = results
        .run
        .configurations
        .iter()
        .filter(|found| found.name != "native");
    others
        .filter_map(|found| {
            let spread = results.cell(row, clients, &found.name)?.over(native)?;
            Some(Mark {
                name: found.name.clone(),
                ratios: [spread.median, spread.least, spread.most],
            })
        })
        .collect()
}

type Drawn = Result<(), Box<dyn std::error::Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn label(area: &Area<'_>, text: &str, at: (i32, i32), horizontal: HPos) -> Drawn {
    let style = ("sans-serif", 13)
        .into_font()
        .color(&BLACK)
        .pos(Pos::new(horizontal, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

fn legend(area: &Area<'_>, title: &str) -> Drawn {
    label(area, title, (16, 16), HPos::Left)?;
    let mut x = 16;
    for (name, colour) in COLOURS {
        let name = if name == "bickford" {
            "bickford (all other modes)"
        } else {
            name
        };
        area.draw(&Circle::new((x + 5, 40), 5, colour.filled()))?;
        label(area, name, (x + 15, 40), HPos::Left)?;
        x += 34 + 7 * i32::try_from(name.len())?;
    }
    Ok(())
}

pub(super) fn svg(results: &Results, clients: usize) -> Result<String, Box<dyn std::error::Error>> {
    let places = results.places();
    let rows: Vec<_> = places
        .iter()
        .filter(|(_, found)| *found == clients)
        .map(|(row, _)| (*row, marks(results, row, clients)))
        .collect();
    let most = rows
        .iter()
        .flat_map(|(_, marks)| marks.iter().map(|mark| mark.ratios[2]))
        .fold(2.0, f64::max);
    let bottom = TOP + LINE * i32::try_from(rows.len())?;
    // From half of native to the worst.
    let (low, high) = (0.5_f64.log2(), (most * 1.1).log2());
    let room = f64::from(WIDTH - LEFT - 24);
    let place = |ratio: f64| LEFT + ((ratio.max(0.5).log2() - low) / (high - low) * room) as i32;

    let mut svg = String::new();
    let size = (u32::try_from(WIDTH)?, u32::try_from(bottom + 30)?);
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    legend(
        &area,
        &format!("Time per operation, as a multiple of native ext4; clients: {clients}"),
    )?;
    let mut tick = 0.5;
    while tick <= most * 1.1 {
        let x = place(tick);
        let grey = RGBColor(220, 220, 220).stroke_width(if tick == 1.0 { 3 } else { 1 });
        area.draw(&PathElement::new([(x, TOP - 8), (x, bottom)], grey))?;
        label(&area, &format!("{tick}"), (x, bottom + 12), HPos::Center)?;
        tick *= 2.0;
    }
    for (index, (row, marks)) in (0_i32..).zip(&rows) {
        let y = TOP + LINE * index + LINE / 2;
        label(&area, row.title, (LEFT - 12, y), HPos::Right)?;
        for mark in marks {
            let colour = colour(&mark.name);
            let [median, least, most] = mark.ratios.map(place);
            area.draw(&PathElement::new(
                [(least, y), (most, y)],
                colour.mix(0.5).stroke_width(2),
            ))?;
            area.draw(&Circle::new((median, y), 4, colour.filled()))?;
        }
    }
    area.present()?;
    drop(area);
    Ok(svg)
}
