//! Plots as SVG that stands in the page.

use plotters::prelude::*;

/// Colours that differ in print and for most eyes that do not see all colours.
const COLOURS: [RGBColor; 8] = [
    RGBColor(60, 60, 60),
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(120, 80, 160),
];

/// What is larger has no axis: its marks cannot be counted.
const LARGEST: f64 = 1e15;

pub(super) fn colour(index: usize) -> RGBColor {
    COLOURS.get(index % COLOURS.len()).copied().unwrap_or(BLACK)
}

/// The same for a style sheet.
pub(super) fn css_colour(index: usize) -> String {
    let RGBColor(r, g, b) = colour(index);
    format!("rgb({r},{g},{b})")
}

/// A named line: points of (x, median, least, most).
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) points: Vec<(f64, f64, f64, f64)>,
}

/// A plot of lines with the range of each point; the vertical axis begins at 0.
pub(super) fn lines(lines: &[Line<'_>], x_title: &str, y_title: &str) -> Result<String, String> {
    let mut svg = String::new();
    draw(&mut svg, lines, x_title, y_title).map_err(|e| format!("plot {y_title}: {e}"))?;
    // The size on the page is the style sheet's; what is drawn scales with it.
    let view = "<svg viewBox=\"0 0 560 300\" role=\"img\"";
    Ok(svg.replacen(
        "<svg width=\"560\" height=\"300\" viewBox=\"0 0 560 300\"",
        view,
        1,
    ))
}

fn draw(
    svg: &mut String,
    lines: &[Line<'_>],
    x_title: &str,
    y_title: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let points = || lines.iter().flat_map(|l| &l.points);
    let x_most = points().map(|p| p.0).fold(0.0, f64::max);
    let y_most = points().map(|p| p.3).fold(0.0, f64::max);
    if x_most <= 0.0 {
        return Err("no points".into());
    }
    if x_most.max(y_most) > LARGEST {
        return Err(format!("{} is no figure that was measured", x_most.max(y_most)).into());
    }
    // Of zeros alone, too, there is an axis.
    let y_most = if y_most > 0.0 { y_most } else { 1.0 };
    let root = SVGBackend::with_string(svg, (560, 300)).into_drawing_area();
    let text = ("sans-serif", 14).into_font();
    let mut chart = ChartBuilder::on(&root)
        .margin(8)
        .x_label_area_size(44)
        .y_label_area_size(66)
        .build_cartesian_2d(0.0..x_most * 1.03, 0.0..y_most * 1.08)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(120, 120, 120))
        .x_desc(x_title)
        .y_desc(y_title)
        .x_labels(8)
        .y_labels(6)
        .x_label_formatter(&|v| label(*v))
        .y_label_formatter(&|v| label(*v))
        .label_style(text.clone())
        .axis_desc_style(text)
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let colour = colour(index);
        let middle = line.points.iter().map(|p| (p.0, p.1));
        chart.draw_series(LineSeries::new(middle.clone(), colour.stroke_width(2)))?;
        chart.draw_series(middle.map(|p| Circle::new(p, 3, colour.filled())))?;
        chart.draw_series(
            line.points
                .iter()
                .map(|p| PathElement::new(vec![(p.0, p.2), (p.0, p.3)], colour.stroke_width(1))),
        )?;
    }
    root.present()?;
    drop(chart);
    Ok(())
}

/// A label of an axis: a round number without zeros behind the point.
pub(super) fn label(value: f64) -> String {
    let text = super::figure(value);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_a_plot() {
        let zeros = Line {
            name: "native",
            points: vec![(4.0, 0.0, 0.0, 0.0), (8.0, 0.0, 0.0, 0.0)],
        };
        assert!(lines(&[zeros], "KB", "MB/s").unwrap().contains("polyline"));
    }

    #[test]
    fn a_plot_is_svg_that_scales() {
        let line = Line {
            name: "native",
            points: vec![(4.0, 10.0, 9.0, 11.0), (8.0, 20.0, 19.0, 21.0)],
        };
        let svg = lines(&[line], "KB", "MB/s").unwrap();
        assert!(svg.starts_with("<svg viewBox="), "{}", &svg[..80]);
        assert!(svg.contains("MB/s") && svg.contains("polyline"));
    }

    #[test]
    fn labels_lose_only_zeros_behind_the_point() {
        assert_eq!(
            [label(0.0), label(20.0), label(1500.0), label(0.5)],
            ["0", "20", "1,500", "0.5"]
        );
    }

    #[test]
    fn nothing_to_plot_is_an_error() {
        assert!(lines(&[], "KB", "MB/s").is_err());
        for large in [f64::MAX, f64::INFINITY, 2e19] {
            let line = Line {
                name: "native",
                points: vec![(4.0, large, large, large)],
            };
            let error = lines(&[line], "KB", "MB/s").unwrap_err();
            assert!(error.contains("no figure that was measured"), "{error}");
        }
    }
}
