//! A plot for each number of clients: every row's ratios to native, on a logarithmic axis.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::configurations::{Configuration, Side};
use crate::results::Results;
use crate::rows::Row;

const LINE: i32 = 22;
const LEFT: i32 = 300;
const WIDTH: i32 = 1000;
const TOP: i32 = 70;
const LEGEND_LEFT: i32 = 16;
const LEGEND_LINE: i32 = 18;

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

/// Those of `--with`, in turn; drawn as triangles.
const GUESTS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(136, 34, 85),
    RGBColor(17, 119, 51),
    RGBColor(51, 34, 136),
    RGBColor(153, 153, 51),
    RGBColor(68, 170, 153),
    RGBColor(204, 102, 119),
    RGBColor(170, 68, 153),
];

/// How one configuration is drawn.
#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    guest: bool,
}

impl Look {
    fn of(results: &Results, configuration: &Configuration) -> Self {
        let guest = configuration.side == Side::Guest;
        let mut guests = guests(results)
            .map(|found| &found.name)
            .zip(GUESTS.iter().cycle());
        let own = guests.find(|(name, _)| guest && **name == configuration.name);
        let mut known = COLOURS.iter();
        let known = known.find(|(start, _)| configuration.name.starts_with(start));
        let colour = own
            .map(|(_, colour)| colour)
            .or(known.map(|(_, colour)| colour));
        Self {
            colour: colour.copied().unwrap_or(BLACK),
            guest,
        }
    }

    fn draw(self, area: &Area<'_>, at: (i32, i32), size: i32) -> Drawn {
        let filled = self.colour.filled();
        match self.guest {
            true => area.draw(&TriangleMarker::new(at, size + 1, filled))?,
            false => area.draw(&Circle::new(at, size, filled))?,
        }
        Ok(())
    }
}

fn guests(results: &Results) -> impl Iterator<Item = &Configuration> {
    let all = results.run.configurations.iter();
    all.filter(|found| found.side == Side::Guest)
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
    look: Look,
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
                look: Look::of(results, found),
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

/// Names and looks of who takes part, in lines that fit.
fn legend(results: &Results) -> Vec<Vec<(i32, String, Look)>> {
    let built_in = COLOURS.iter().filter_map(|(start, colour)| {
        let mut all = results.run.configurations.iter();
        all.any(|found| found.side != Side::Guest && found.name.starts_with(start))
            .then(|| {
                let name = match *start {
                    "bickford" => "bickford (all other modes)",
                    start => start,
                };
                let guest = false;
                let colour = *colour;
                (name.to_owned(), Look { colour, guest })
            })
    });
    let guests = guests(results).map(|found| (found.name.clone(), Look::of(results, found)));
    let mut lines = vec![Vec::new()];
    let mut x = LEGEND_LEFT;
    for (name, look) in built_in.chain(guests) {
        let wide = 34 + 7 * i32::try_from(name.len()).unwrap_or(WIDTH);
        if x > LEGEND_LEFT && x.saturating_add(wide) > WIDTH {
            lines.push(Vec::new());
            x = LEGEND_LEFT;
        }
        if let Some(line) = lines.last_mut() {
            line.push((x, name, look));
        }
        x = x.saturating_add(wide);
    }
    lines
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
    let legend = legend(results);
    let top = TOP + LEGEND_LINE * (i32::try_from(legend.len())? - 1);
    let bottom = top + LINE * i32::try_from(rows.len())?;
    // From half of native to the worst.
    let (low, high) = (0.5_f64.log2(), (most * 1.1).log2());
    let room = f64::from(WIDTH - LEFT - 24);
    let place = |ratio: f64| LEFT + ((ratio.max(0.5).log2() - low) / (high - low) * room) as i32;

    let mut svg = String::new();
    let size = (u32::try_from(WIDTH)?, u32::try_from(bottom + 30)?);
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let title = format!("Time per operation, as a multiple of native ext4; clients: {clients}");
    label(&area, &title, (LEGEND_LEFT, 16), HPos::Left)?;
    for (y, line) in (40..).step_by(LEGEND_LINE as usize).zip(&legend) {
        for (x, name, look) in line {
            look.draw(&area, (x + 5, y), 5)?;
            label(&area, name, (x + 15, y), HPos::Left)?;
        }
    }
    let mut tick = 0.5;
    while tick <= most * 1.1 {
        let x = place(tick);
        let grey = RGBColor(220, 220, 220).stroke_width(if tick == 1.0 { 3 } else { 1 });
        area.draw(&PathElement::new([(x, top - 8), (x, bottom)], grey))?;
        label(&area, &format!("{tick}"), (x, bottom + 12), HPos::Center)?;
        tick *= 2.0;
    }
    for (index, (row, marks)) in (0_i32..).zip(&rows) {
        let y = top + LINE * index + LINE / 2;
        label(&area, row.title, (LEFT - 12, y), HPos::Right)?;
        for mark in marks {
            let [median, least, most] = mark.ratios.map(place);
            area.draw(&PathElement::new(
                [(least, y), (most, y)],
                mark.look.colour.mix(0.5).stroke_width(2),
            ))?;
            mark.look.draw(&area, (median, y), 4)?;
        }
    }
    area.present()?;
    drop(area);
    Ok(svg)
}
