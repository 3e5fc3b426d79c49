//! How answers look: tables that fit the terminal, bars of slots, colours.
//! Never knows what it prints, and never colours what does not go to a terminal: the stream strips it.

use anstyle::{AnsiColor, Style};

use crate::model::slots::{SLOT_COUNT, SlotSet};

/// Where nothing is known of the terminal: a pipe or a file.
pub(super) const WIDTH: usize = 120;

/// Narrower than this nothing is made.
const WIDTH_MIN: usize = 40;

/// How wide the terminal is; [`WIDTH`] where there is none.
pub(super) fn width() -> usize {
    let size = terminal_size::terminal_size();
    size.map_or(WIDTH, |(width, _)| usize::from(width.0).max(WIDTH_MIN))
}

/// What a cell says of its content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// A heading.
    Head,
    /// As it should be.
    Good,
    /// On its way.
    Busy,
    /// Wrong.
    Bad,
}

impl Tone {
    /// The text in the tone's colour.
    pub(super) fn paint(self, text: &str) -> String {
        let style = match self {
            Self::Plain => return text.to_owned(),
            Self::Head => Style::new().bold(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Busy => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        };
        format!("{style}{text}{style:#}")
    }
}

/// One cell of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    /// A cell in a tone.
    pub(super) fn toned(text: impl Into<String>, tone: Tone) -> Self {
        Self {
            text: text.into(),
            tone,
        }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

/// Rows under headings.
#[derive(Debug)]
pub(super) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

const GAP: &str = "  ";

impl Table {
    /// A table without rows.
    pub(super) fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row with a cell for each heading.
    pub(super) fn row(&mut self, cells: Vec<Cell>) {
        self.rows.push(cells);
    }

    /// The table; where it does not fit, each row as a paragraph under its first cells. A column
    /// without content is left out.
    pub(super) fn text(&self, width: usize) -> String {
        let filled = |column: &usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.get(*column));
            cells.any(|cell| !cell.text.is_empty())
        };
        let columns: Vec<usize> = (0..self.heads.len()).filter(filled).collect();
        let widths: Vec<(usize, usize)> = columns
            .iter()
            .map(|column| (*column, self.width_of(*column)))
            .collect();
        let whole = widths
            .iter()
            .map(|(_, width)| width + GAP.len())
            .sum::<usize>();
        if whole.saturating_sub(GAP.len()) <= width {
            self.wide(&widths)
        } else {
            self.narrow(&columns, width)
        }
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let cells = cells.map(|cell| cell.text.chars().count());
        let head = self.heads.get(column).map_or(0, |head| head.len());
        cells.chain([head]).max().unwrap_or(0)
    }

    fn wide(&self, widths: &[(usize, usize)]) -> String {
        let heads = self.heads.iter().map(|head| Cell::toned(*head, Tone::Head));
        let heads: Vec<Cell> = heads.collect();
        let mut text = String::new();
        for row in [&heads].into_iter().chain(&self.rows) {
            let mut line = String::new();
            let mut pending = 0;
            for (column, width) in widths {
                let Some(cell) = row.get(*column) else {
                    continue;
                };
                // Padding goes before the next cell, so that no line ends in blanks.
                if !cell.text.is_empty() {
                    line.push_str(&" ".repeat(pending));
                    line.push_str(&cell.tone.paint(&cell.text));
                    pending = 0;
                }
                pending += width.saturating_sub(cell.text.chars().count()) + GAP.len();
            }
            writeln_to(&mut text, &line);
        }
        text
    }

    fn narrow(&self, columns: &[usize], width: usize) -> String {
        let mut text = String::new();
        for row in &self.rows {
            let cell = |column: &usize| row.get(*column).filter(|cell| !cell.text.is_empty());
            let named = if columns.len() > 2 { 2 } else { 1 };
            let (first, rest) = columns.split_at(columns.len().min(named));
            let first: Vec<String> = first
                .iter()
                .filter_map(cell)
                .map(|cell| cell.tone.paint(&cell.text))
                .collect();
            writeln_to(&mut text, &first.join(GAP));
            let facts = rest.iter().filter_map(|column| {
                let fact = &cell(column)?.text;
                if named == 1 {
                    return Some(fact.clone());
                }
                let head = self.heads.get(*column)?.to_lowercase();
                Some(format!("{head} {fact}"))
            });
            let facts: Vec<String> = facts.collect();
            text.push_str(&wrapped("    ", &facts.join(", "), width));
        }
        text
    }
}

fn writeln_to(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Words in lines no longer than the width, where no word is; each line begins with the indent.
pub(super) fn wrapped(indent: &str, words: &str, width: usize) -> String {
    let mut text = String::new();
    let mut line = String::from(indent);
    for word in words.split_whitespace() {
        let is_first = line.len() == indent.len();
        if !is_first && line.chars().count() + 1 + word.chars().count() > width {
            writeln_to(&mut text, &line);
            line = String::from(indent);
        } else if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    if line.len() > indent.len() {
        writeln_to(&mut text, &line);
    }
    text
}

/// A name and what there is to say of it, the lines after the first indented below it.
pub(super) fn said(name: &str, words: &str, width: usize) -> String {
    const NAME_WIDTH: usize = 8;
    let indent = " ".repeat(NAME_WIDTH);
    let text = wrapped(&indent, words, width);
    let name = format!("{name:<NAME_WIDTH$}");
    text.replacen(&indent, &Tone::Head.paint(&name), 1)
}

/// The slots as a bar of as many cells: full where all of a cell's slots are in the set, half where
/// some are.
pub(super) fn bar(slots: &SlotSet, cells: u32) -> String {
    let mut bar = String::new();
    for cell in 0..cells {
        let (start, end) = (cell * SLOT_COUNT / cells, (cell + 1) * SLOT_COUNT / cells);
        let held: u32 = slots
            .ranges()
            .iter()
            .map(|range| {
                let (first, last) = (range.start().max(start), (range.end() + 1).min(end));
                last.saturating_sub(first)
            })
            .sum();
        bar.push(match held {
            0 => '·',
            held if held == end - start => '█',
            _ => '▒',
        });
    }
    bar
}

/// Bytes as people write them.
pub(super) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "Ki", "Mi", "Gi", "Ti"];
    let mut unit = 0;
    let mut tenths = u128::from(count) * 10;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 || tenths >= 1000 {
        format!("{}{name}", tenths / 10)
    } else {
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::slots::SlotRange;

    fn table() -> Table {
        let mut table = Table::new(&["NODE", "ROLE", "EMPTY", "LAG"]);
        table.row(vec!["c-1".into(), "primary".into(), "".into(), "".into()]);
        table.row(vec!["c-22".into(), "replica".into(), "".into(), "5".into()]);
        table
    }

    #[test]
    fn a_table_fits_or_becomes_paragraphs() {
        let plain = |width| anstream::adapter::strip_str(&table().text(width)).to_string();
        assert_eq!(
            plain(40),
            "NODE  ROLE     LAG\nc-1   primary\nc-22  replica  5\n"
        );
        assert_eq!(plain(10), "c-1  primary\nc-22  replica\n    lag 5\n");
    }

    #[test]
    fn words_wrap_at_the_width() {
        assert_eq!(wrapped("  ", "one two three", 9), "  one two\n  three\n");
        assert_eq!(wrapped("  ", "", 9), "");
    }

    #[test]
    fn a_bar_shows_where_slots_are() {
        let set = |start, end| SlotSet::of(SlotRange::new(start, end).into_iter().collect());
        assert_eq!(bar(&set(0, 8191), 4), "██··");
        assert_eq!(bar(&set(0, 100), 4), "▒···");
        assert_eq!(bar(&SlotSet::all(), 3), "███");
    }

    #[test]
    fn bytes_are_short() {
        let all = [0, 1023, 1024, 1536, 100 << 20, 3 << 30].map(bytes);
        assert_eq!(all, ["0B", "1023B", "1.0Ki", "1.5Ki", "100Mi", "3.0Gi"]);
    }
}
