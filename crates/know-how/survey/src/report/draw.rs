//! The one vocabulary of drawing: a chart is a list of marks, which the pens put on a page.

/// A place on a drawing: to the right, downwards.
pub type Spot = (f32, f32);

/// What a mark is painted with. The pens know the colours, for light and dark paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paint {
    /// Text that is read.
    Ink,
    /// Text that stands back.
    Muted,
    /// Lines of the grid.
    Grid,
    /// What a bar could be.
    Track,
    /// The paper.
    Surface,
    /// The colour of a series, counted round [`SERIES`].
    Series(usize),
    /// What stands out.
    Alert,
}

/// Different colours for series; told apart by people who see fewer colours, with forms besides.
pub const SERIES: usize = 6;

/// Red, green and blue of [`Paint::Series`] on white paper.
const SERIES_ON_WHITE: [[u8; 3]; SERIES] =
    [[0, 99, 166], [0, 128, 96], [176, 112, 0], [150, 66, 128], [40, 150, 200], [96, 104, 116]];

impl Paint {
    /// Red, green and blue on white paper.
    pub fn on_white(self) -> [u8; 3] {
        match self {
            Self::Ink => [22, 32, 43],
            Self::Muted => [88, 100, 113],
            Self::Grid => [222, 226, 231],
            Self::Track => [230, 234, 239],
            Self::Surface => [255, 255, 255],
            Self::Series(which) => SERIES_ON_WHITE[which % SERIES],
            Self::Alert => [194, 55, 20],
        }
    }
}

/// Which end of a text lies at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins there.
    Start,
    /// It is centred.
    Middle,
    /// It ends there.
    End,
}

/// The form of a point, so that series differ by more than colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Disc,
    /// A square on its side.
    Square,
    /// A square on its corner.
    Diamond,
    Triangle,
}

impl Form {
    /// The form of a series.
    pub fn of(series: usize) -> Self {
        [Self::Disc, Self::Square, Self::Diamond, Self::Triangle][series % 4]
    }

    /// The corners of the form with that radius; none for a disc.
    pub fn corners(self, (x, y): Spot, r: f32) -> Vec<Spot> {
        match self {
            Self::Disc => Vec::new(),
            Self::Square => {
                let a = r * 0.9;
                vec![(x - a, y - a), (x + a, y - a), (x + a, y + a), (x - a, y + a)]
            }
            Self::Diamond => {
                let a = r * 1.25;
                vec![(x, y - a), (x + a, y), (x, y + a), (x - a, y)]
            }
            Self::Triangle => {
                let a = r * 1.2;
                vec![(x, y - a), (x + a, y + a * 0.8), (x - a, y + a * 0.8)]
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A line through points.
    Line {
        /// In order.
        points: Vec<Spot>,
        /// How thick.
        width: f32,
        /// Broken: what is only a reference.
        dashed: bool,
    },
    /// A filled outline.
    Area {
        /// In order; the last joins the first.
        points: Vec<Spot>,
    },
    /// A filled rectangle.
    Bar {
        /// Upper left corner.
        at: Spot,
        width: f32,
        height: f32,
    },
    /// A point.
    Dot {
        /// Its middle.
        at: Spot,
        /// How big.
        radius: f32,
        /// Of which form.
        form: Form,
    },
    /// A line of text.
    Text {
        /// On the base line.
        at: Spot,
        /// How high the letters stand.
        size: f32,
        /// Which end is there.
        anchor: Anchor,
        /// Heavier.
        bold: bool,
        /// With paper round the letters, where lines cross it.
        halo: bool,
        /// What it says.
        text: String,
    },
}

/// A shape with its paint.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    pub shape: Shape,
    /// With what.
    pub paint: Paint,
    /// 1 covers what lies below.
    pub opacity: f32,
    /// It shows a number; a chart without such marks shows nothing.
    pub data: bool,
}

/// What a reader sees when he points at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct Tip {
    pub at: Spot,
    /// Within which distance.
    pub radius: f32,
    /// What is said, line by line.
    pub lines: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    pub width: f32,
    pub height: f32,
    /// What it shows, for those who hear it.
    pub title: String,
    /// What is to be seen in it, for those who hear it.
    pub about: String,
    /// Names of what is measured in it, in the order of its series, for those who check it against the document.
    pub shows: Vec<String>,
    /// From the lowest to the topmost.
    pub marks: Vec<Mark>,
    /// What is said at places.
    pub tips: Vec<Tip>,
}

/// Letters of labels.
pub const LABEL: f32 = 11.0;
/// Letters of what matters more.
pub const STRONG: f32 = 12.0;

impl Drawing {
    /// An empty sheet.
    pub fn new(width: f32, height: f32, title: &str) -> Self {
        let title = title.to_owned();
        let (about, shows) = (String::new(), Vec::new());
        Self { width, height, title, about, shows, marks: Vec::new(), tips: Vec::new() }
    }

    /// Adds what frames the data.
    pub fn frame(&mut self, paint: Paint, shape: Shape) {
        self.marks.push(Mark { shape, paint, opacity: 1.0, data: false });
    }

    /// Adds what shows a number.
    pub fn data(&mut self, paint: Paint, opacity: f32, shape: Shape) {
        self.marks.push(Mark { shape, paint, opacity, data: true });
    }

    /// Adds a label.
    pub fn label(&mut self, paint: Paint, at: Spot, anchor: Anchor, text: impl Into<String>) {
        let shape = Shape::Text { at, size: LABEL, anchor, bold: false, halo: false, text: text.into() };
        self.frame(paint, shape);
    }

    /// Adds a heavier label.
    pub fn strong(&mut self, paint: Paint, at: Spot, anchor: Anchor, text: impl Into<String>) {
        let shape = Shape::Text { at, size: LABEL, anchor, bold: true, halo: true, text: text.into() };
        self.frame(paint, shape);
    }

    /// Adds a straight line of the frame.
    pub fn rule(&mut self, paint: Paint, from: Spot, to: Spot, dashed: bool) {
        self.frame(paint, Shape::Line { points: vec![from, to], width: 1.0, dashed });
    }

    /// Adds what is said at a place.
    pub fn tip(&mut self, at: Spot, radius: f32, lines: Vec<String>) {
        self.tips.push(Tip { at, radius, lines });
    }
}
