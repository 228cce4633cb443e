//! Pages that fill from the top: headings, paragraphs, tables and drawings, broken where a page ends.

use std::io::Write;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use pdf_writer::types::PageMode;
use pdf_writer::{Content, Filter, Finish, Name, Pdf, Rect, Ref, TextStr};

use super::super::draw::{Drawing, Paint, Spot};
use super::super::figures::Table;
use super::super::letters::{self, Face};
use super::pen::{self, OPACITIES};

/// A4, in points.
const PAGE: Spot = (595.28, 841.89);
/// Left and right of the text.
const MARGIN: f32 = 50.0;
/// Above the text.
const TOP: f32 = 54.0;
/// Below it, with the page number.
const BOTTOM: f32 = 58.0;
/// Width of the text.
pub const WIDE: f32 = PAGE.0 - 2.0 * MARGIN;
/// Between two drawings beside each other.
const GUTTER: f32 = 19.0;
/// Distance of lines, as a multiple of the size.
const LEADING: f32 = 1.38;
/// Pages of one report; what would not fit is left to the JSON, and the last page says so.
const MOST_PAGES: usize = 400;

/// How a piece of text looks.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Height of the letters.
    pub size: f32,
    /// Which letters.
    pub face: Face,
    /// Which colour.
    pub paint: Paint,
}

impl Cell {
    /// Text that is read.
    pub const BODY: Self = Self { size: 9.5, face: Face::Plain, paint: Paint::Ink };
    /// Text that stands back.
    pub const QUIET: Self = Self { size: 8.5, face: Face::Plain, paint: Paint::Muted };
    /// A cell of a table.
    pub const SMALL: Self = Self { size: 7.8, face: Face::Plain, paint: Paint::Ink };
    /// A command line.
    pub const CODE: Self = Self { size: 7.4, face: Face::Mono, paint: Paint::Ink };
}

struct Bookmark {
    level: u8,
    title: String,
    page: usize,
    y: f32,
}

/// The pages so far.
pub struct Flow {
    pages: Vec<Content>,
    y: f32,
    bookmarks: Vec<Bookmark>,
    full: bool,
}

impl Default for Flow {
    fn default() -> Self {
        Self { pages: vec![Content::new()], y: PAGE.1 - TOP, bookmarks: Vec::new(), full: false }
    }
}

impl Flow {
    fn page(&mut self) -> &mut Content {
        if self.pages.is_empty() {
            self.pages.push(Content::new());
        }
        let last = self.pages.len() - 1;
        &mut self.pages[last]
    }

    /// Begins a page when fewer points than that are left; false when the report is full.
    pub fn room(&mut self, high: f32) -> bool {
        if self.full {
            return false;
        }
        if self.y - high < BOTTOM && self.y < PAGE.1 - TOP {
            if self.pages.len() >= MOST_PAGES {
                self.full = true;
                let at = (MARGIN, BOTTOM - 12.0);
                let text = "The rest does not fit: see the JSON.";
                pen::write(self.page(), text, at, 8.5, Face::Bold, Paint::Alert);
                return false;
            }
            self.pages.push(Content::new());
            self.y = PAGE.1 - TOP;
        }
        true
    }

    /// Leaves space.
    pub fn gap(&mut self, high: f32) {
        if self.y < PAGE.1 - TOP {
            self.y -= high;
        }
    }

    /// A heading with a bookmark; `keep` points of what follows stay on its page.
    pub fn heading(&mut self, level: u8, title: &str, keep: f32) {
        let size = match level {
            0 => 19.0,
            1 => 14.0,
            _ => 10.5,
        };
        let lines = letters::wrap(title, size, Face::Bold, WIDE);
        self.gap(if level < 2 { 16.0 } else { 8.0 });
        if !self.room(lines.len().min(6) as f32 * size * 1.25 + keep) {
            return;
        }
        let (page, y) = (self.pages.len() - 1, self.y + 6.0);
        self.bookmarks.push(Bookmark { level: level.max(1), title: letters::clean(title), page, y });
        for line in lines.iter().take(6) {
            self.y -= size * 1.25;
            let at = (MARGIN, self.y + size * 0.25);
            pen::write(self.page(), line, at, size, Face::Bold, Paint::Ink);
        }
        self.gap(3.0);
    }

    /// A paragraph.
    pub fn text(&mut self, text: &str, look: Cell) {
        for line in letters::wrap(text, look.size, look.face, WIDE) {
            let high = look.size * LEADING;
            if !self.room(high) {
                return;
            }
            self.y -= high;
            let at = (MARGIN, self.y + look.size * 0.35);
            pen::write(self.page(), &line, at, look.size, look.face, look.paint);
        }
        self.gap(3.0);
    }

    /// Command lines on a ground of their own.
    pub fn code(&mut self, text: &str) {
        let look = Cell::CODE;
        for line in letters::wrap(text, look.size, look.face, WIDE - 12.0) {
            let high = look.size * 1.5;
            if !self.room(high) {
                return;
            }
            self.y -= high;
            let y = self.y;
            let page = self.page();
            page.save_state();
            pen::colour(page, Paint::Track);
            page.set_parameters(Name(pen::opacity(OPACITIES / 2).as_bytes()));
            page.rect(MARGIN, y, WIDE, high);
            page.fill_nonzero();
            page.restore_state();
            pen::write(page, &line, (MARGIN + 6.0, y + look.size * 0.42), look.size, look.face, look.paint);
        }
        self.gap(3.0);
    }

    /// A table; columns share the width by what they hold.
    pub fn table(&mut self, table: &Table) {
        if table.rows.is_empty() {
            return;
        }
        let widths = widths(table);
        let heads: Vec<String> = table.heads.iter().map(|(name, _)| name.clone()).collect();
        let head = Cell { face: Face::Bold, paint: Paint::Muted, ..Cell::SMALL };
        let high = height(&heads, &widths, head);
        if !self.room(high * 3.0) {
            return;
        }
        self.row(&heads, table, &widths, head);
        for row in &table.rows {
            let look = if row.alert {
                Cell { face: Face::Bold, paint: Paint::Alert, ..Cell::SMALL }
            } else {
                Cell::SMALL
            };
            let before = self.pages.len();
            if !self.room(height(&row.cells, &widths, look)) {
                return;
            }
            if self.pages.len() > before {
                self.row(&heads, table, &widths, head);
            }
            self.row(&row.cells, table, &widths, look);
        }
        self.gap(6.0);
    }

    fn row(&mut self, cells: &[String], table: &Table, widths: &[f32], look: Cell) {
        let (top, high) = (self.y, height(cells, widths, look));
        let mut x = MARGIN;
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            let number = table.heads.get(column).is_some_and(|(_, number)| *number);
            let lines = letters::wrap(cell, look.size, look.face, width - PADDING);
            for (which, line) in lines.iter().take(MOST_LINES).enumerate() {
                let wide = letters::width(line, look.size, look.face);
                let left = if number { x + width - PADDING - wide } else { x };
                let at = (left, top - look.size * (1.1 + which as f32 * 1.25));
                pen::write(self.page(), line, at, look.size, look.face, look.paint);
            }
            x += width;
        }
        self.y -= high;
        let y = self.y + 1.0;
        let page = self.page();
        pen::colour(page, Paint::Grid);
        page.set_line_width(0.5);
        page.move_to(MARGIN, y).line_to(MARGIN + WIDE, y).stroke();
    }

    /// Drawings, each over the whole width.
    pub fn drawing(&mut self, drawing: &Drawing) {
        let high = drawing.height * WIDE / drawing.width.max(1.0);
        if !self.room(high + 4.0) {
            return;
        }
        let at = (MARGIN, self.y);
        pen::draw(self.page(), drawing, at, WIDE);
        self.y -= high + 6.0;
    }

    /// Drawings with their titles and subtitles, two beside each other.
    pub fn pairs(&mut self, figures: &[(String, String, Drawing)]) {
        let wide = (WIDE - GUTTER) / 2.0;
        for pair in figures.chunks(2) {
            let titles: Vec<Vec<String>> =
                pair.iter().map(|(title, ..)| letters::wrap(title, 9.0, Face::Bold, wide)).collect();
            let above = titles.iter().map(|t| t.len().min(3)).max().unwrap_or(1) as f32 * 11.5 + 15.0;
            let scaled = |drawing: &Drawing| drawing.height * wide / drawing.width.max(1.0);
            let high = pair.iter().map(|(.., drawing)| scaled(drawing)).fold(0.0, f32::max);
            if !self.room(above + high + 6.0) {
                return;
            }
            for (which, ((_, subtitle, drawing), title)) in pair.iter().zip(&titles).enumerate() {
                let x = MARGIN + which as f32 * (wide + GUTTER);
                let mut y = self.y;
                for line in title.iter().take(3) {
                    y -= 11.5;
                    pen::write(self.page(), line, (x, y + 2.5), 9.0, Face::Bold, Paint::Ink);
                }
                let subtitle = letters::fit(subtitle, 7.5, Face::Plain, wide);
                pen::write(self.page(), &subtitle, (x, y - 7.5), 7.5, Face::Plain, Paint::Muted);
                let at = (x, self.y - above);
                pen::draw(self.page(), drawing, at, wide);
            }
            self.y -= above + high + 12.0;
        }
    }

    /// A coloured bar on the left of what was written since `from`, if that is on one page.
    pub fn side_bar(&mut self, from: (usize, f32), paint: Paint) {
        let (page, top) = from;
        if page + 1 != self.pages.len() || top <= self.y {
            return;
        }
        let y = self.y;
        let page = self.page();
        pen::colour(page, paint);
        page.rect(MARGIN - 12.0, y + 2.0, 3.5, top - y);
        page.fill_nonzero();
    }

    /// Where the next thing will stand.
    pub fn place(&self) -> (usize, f32) {
        (self.pages.len().saturating_sub(1), self.y)
    }

    pub fn finish(mut self, title: &str) -> Vec<u8> {
        let count = self.pages.len();
        let running = letters::fit(title, 7.5, Face::Plain, WIDE - 90.0);
        for (which, page) in self.pages.iter_mut().enumerate() {
            let number = format!("Page {} of {count}", which + 1);
            let wide = letters::width(&number, 7.5, Face::Plain);
            pen::write(page, &running, (MARGIN, 32.0), 7.5, Face::Plain, Paint::Muted);
            pen::write(page, &number, (PAGE.0 - MARGIN - wide, 32.0), 7.5, Face::Plain, Paint::Muted);
        }
        document(self.pages, &self.bookmarks, title)
    }
}

/// Between columns.
const PADDING: f32 = 8.0;
/// Lines of one cell; a longer one is cut.
const MOST_LINES: usize = 12;

fn height(cells: &[String], widths: &[f32], look: Cell) -> f32 {
    let lines = |(cell, width): (&String, &f32)| {
        letters::wrap(cell, look.size, look.face, width - PADDING).len().min(MOST_LINES)
    };
    cells.iter().zip(widths).map(lines).max().unwrap_or(1) as f32 * look.size * 1.25 + 4.5
}

/// Columns as wide as they wish when that fits; else the widest give.
fn widths(table: &Table) -> Vec<f32> {
    let size = Cell::SMALL.size;
    let mut widths: Vec<f32> = table
        .heads
        .iter()
        .enumerate()
        .map(|(column, (name, _))| {
            let cells = table.rows.iter().filter_map(|row| row.cells.get(column));
            let head = letters::width(name, size, Face::Bold);
            cells.map(|cell| letters::width(cell, size, Face::Bold)).fold(head, f32::max) + PADDING
        })
        .collect();
    let sum: f32 = widths.iter().sum();
    if sum <= WIDE {
        spend(&mut widths, table, WIDE - sum);
        return widths;
    }
    let fair = WIDE / widths.len().max(1) as f32;
    let small: f32 = widths.iter().filter(|width| **width <= fair).sum();
    let large: f32 = widths.iter().filter(|width| **width > fair).sum();
    for width in &mut widths {
        if *width > fair {
            *width *= (WIDE - small) / large;
        }
    }
    widths
}

/// Most of what numbers get besides their own width.
const AIR: f32 = 26.0;

/// What is left goes to numbers first, then to words: the last column of them, or the one before numbers.
fn spend(widths: &mut [f32], table: &Table, left: f32) {
    let numbers = table.heads.iter().filter(|(_, number)| *number).count();
    let air = if numbers > 0 { (left / numbers as f32).min(AIR) } else { 0.0 };
    for (width, (_, number)) in widths.iter_mut().zip(&table.heads) {
        *width += if *number { air } else { 0.0 };
    }
    let words = if numbers > 0 { 0 } else { widths.len().saturating_sub(1) };
    if let Some(width) = widths.get_mut(words) {
        *width += left - air * numbers as f32;
    }
    // Two columns of words do not stand at opposite ends.
    if let ([first, second], 0) = (&mut *widths, numbers) {
        let move_over = (110.0 - *first).clamp(0.0, 110.0);
        *first += move_over;
        *second -= move_over;
    }
}

fn document(pages: Vec<Content>, bookmarks: &[Bookmark], title: &str) -> Vec<u8> {
    let mut pdf = Pdf::new();
    let mut last = 0;
    let mut next = || {
        last += 1;
        Ref::new(last)
    };
    let (catalog, tree, info, outline) = (next(), next(), next(), next());
    let fonts = [(Face::Plain, next()), (Face::Bold, next()), (Face::Mono, next())];
    let opacities: Vec<Ref> = (0..OPACITIES).map(|_| next()).collect();
    let ids: Vec<(Ref, Ref)> = pages.iter().map(|_| (next(), next())).collect();
    let items: Vec<Ref> = bookmarks.iter().map(|_| next()).collect();
    let mut root = pdf.catalog(catalog);
    root.pages(tree);
    if !items.is_empty() {
        root.outlines(outline).page_mode(PageMode::UseOutlines);
    }
    root.lang(TextStr("en")).viewer_preferences().display_doc_title(true);
    root.finish();
    let kids: Vec<Ref> = ids.iter().map(|(page, _)| *page).collect();
    pdf.pages(tree).kids(kids).count(i32::try_from(ids.len()).unwrap_or(i32::MAX));
    pdf.document_info(info).title(TextStr(&letters::clean(title))).creator(TextStr("skep survey"));
    for (face, id) in fonts {
        let base: &[u8] = match face {
            Face::Plain => b"Helvetica",
            Face::Bold => b"Helvetica-Bold",
            Face::Mono => b"Courier",
        };
        pdf.type1_font(id).base_font(Name(base)).encoding_predefined(Name(b"WinAnsiEncoding"));
    }
    for (step, id) in opacities.iter().enumerate() {
        let share = (step + 1) as f32 / OPACITIES as f32;
        pdf.ext_graphics(*id).non_stroking_alpha(share).stroking_alpha(share);
    }
    for ((page_id, content_id), content) in ids.iter().zip(pages) {
        let mut page = pdf.page(*page_id);
        page.media_box(Rect::new(0.0, 0.0, PAGE.0, PAGE.1)).parent(tree).contents(*content_id);
        let mut resources = page.resources();
        let mut dictionary = resources.fonts();
        for (face, id) in fonts {
            dictionary.pair(pen::font(face), id);
        }
        dictionary.finish();
        let mut states = resources.ext_g_states();
        for (step, id) in opacities.iter().enumerate() {
            states.pair(Name(pen::opacity(step + 1).as_bytes()), *id);
        }
        states.finish();
        resources.finish();
        page.finish();
        stream(&mut pdf, *content_id, &content.finish());
    }
    write_outline(&mut pdf, outline, bookmarks, &items, &ids);
    pdf.finish()
}

/// The content of a page, a tenth of its size.
fn stream(pdf: &mut Pdf, id: Ref, content: &[u8]) {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    match encoder.write_all(content).and_then(|()| encoder.finish()) {
        Ok(packed) => {
            pdf.stream(id, &packed).filter(Filter::FlateDecode);
        }
        // Writing into memory does not fail; if it did, the page would be larger.
        Err(_) => {
            pdf.stream(id, content);
        }
    }
}

/// Bookmarks of the first level, each with those of the second that follow it.
fn write_outline(pdf: &mut Pdf, root: Ref, bookmarks: &[Bookmark], items: &[Ref], pages: &[(Ref, Ref)]) {
    let firsts: Vec<usize> = (0..bookmarks.len()).filter(|i| *i == 0 || bookmarks[*i].level == 1).collect();
    let (Some(first), Some(last)) = (firsts.first(), firsts.last()) else { return };
    let count = i32::try_from(firsts.len()).unwrap_or(i32::MAX);
    pdf.outline(root).first(items[*first]).last(items[*last]).count(count);
    for (order, at) in firsts.iter().enumerate() {
        let end = firsts.get(order + 1).copied().unwrap_or(bookmarks.len());
        let children: Vec<usize> = (at + 1..end).collect();
        let beside = |order: usize| firsts.get(order).map(|at| items[*at]);
        let before = order.checked_sub(1).and_then(beside);
        let inner =
            children.first().zip(children.last()).map(|(a, b)| (items[*a], items[*b], children.len()));
        write_item(pdf, items[*at], &bookmarks[*at], pages, root, (before, beside(order + 1)), inner);
        for (order, child) in children.iter().enumerate() {
            let beside = |order: usize| children.get(order).map(|at| items[*at]);
            let before = order.checked_sub(1).and_then(beside);
            let around = (before, beside(order + 1));
            write_item(pdf, items[*child], &bookmarks[*child], pages, items[*at], around, None);
        }
    }
}

fn write_item(
    pdf: &mut Pdf,
    id: Ref,
    bookmark: &Bookmark,
    pages: &[(Ref, Ref)],
    parent: Ref,
    (before, after): (Option<Ref>, Option<Ref>),
    inner: Option<(Ref, Ref, usize)>,
) {
    let mut item = pdf.outline_item(id);
    item.title(TextStr(&bookmark.title)).parent(parent);
    if let Some(before) = before {
        item.prev(before);
    }
    if let Some(after) = after {
        item.next(after);
    }
    if let Some((first, last, count)) = inner {
        // Negative: folded until somebody opens it.
        item.first(first).last(last).count(-i32::try_from(count).unwrap_or(i32::MAX));
    }
    if let Some((page, _)) = pages.get(bookmark.page) {
        item.dest().page(*page).xyz(0.0, bookmark.y + 12.0, None);
    }
}
