// Asks the page what it shows; gives text that the test reads. Run in the browser by `cargo xtask browser`.
(() => {
  const shown = (element) => element.getClientRects().length > 0;
  const parse = (colour) => {
    const parts = (colour.match(/[\d.]+/g) || []).map(Number);
    return { rgb: parts.slice(0, 3), alpha: parts.length > 3 ? parts[3] : colour === "none" ? 0 : 1 };
  };
  const light = ([r, g, b]) => {
    const linear = (v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  };
  const contrast = (a, b) => {
    const [x, y] = [light(a) + 0.05, light(b) + 0.05];
    return x > y ? x / y : y / x;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const { rgb, alpha } = parse(getComputedStyle(at).backgroundColor);
      if (alpha > 0.99) return rgb;
    }
    return [255, 255, 255];
  };
  const paper = parse(getComputedStyle(document.body).backgroundColor).rgb;
  const pale = [];
  const read = (element, colour, behind) => {
    const { rgb, alpha } = parse(colour);
    if (alpha > 0.99 && contrast(rgb, behind) < 4.5) pale.push(element.textContent.slice(0, 60));
  };
  for (const element of document.querySelectorAll("h1,h2,h3,p,li,td,th,summary,pre,a,figcaption span,.chip,footer")) {
    if (shown(element)) read(element, getComputedStyle(element).color, ground(element));
  }
  const inside = (a, b, slack) =>
    a.x >= b.x - slack && a.y >= b.y - slack &&
    a.x + a.width <= b.x + b.width + slack && a.y + a.height <= b.y + b.height + slack;
  const charts = [...document.querySelectorAll("svg.chart")].filter(shown).map((svg) => {
    const box = svg.viewBox.baseVal;
    const behind = ground(svg);
    const marks = [...svg.querySelectorAll(".m")];
    const unseen = marks.filter((mark) => {
      const style = getComputedStyle(mark);
      const paint = mark.classList.contains("k") ? style.stroke : style.fill;
      const area = mark.getBBox();
      const seen = style.visibility === "visible" && Number(style.opacity) > 0.01 && parse(paint).alpha > 0.01;
      return !seen || (area.width <= 0 && area.height <= 0 && !mark.classList.contains("k"));
    });
    const texts = [...svg.querySelectorAll("text")].filter((text) => !text.closest(".tip"));
    const outside = [...marks, ...texts].filter((element) => {
      const area = element.getBBox();
      return !inside(area, box, 1.5);
    });
    const areas = texts.map((text) => ({ text: text.textContent, area: text.getBBox() }));
    const over = [];
    areas.forEach((a, i) => areas.slice(i + 1).forEach((b) => {
      const across = Math.min(a.area.x + a.area.width, b.area.x + b.area.width) - Math.max(a.area.x, b.area.x);
      const down = Math.min(a.area.y + a.area.height, b.area.y + b.area.height) - Math.max(a.area.y, b.area.y);
      if (across > 2 && down > 4) over.push(`${a.text} / ${b.text}`);
    }));
    for (const text of texts) read(text, getComputedStyle(text).fill, behind);
    const spilled = [...svg.querySelectorAll(".tip")].filter((tip) => {
      const frame = tip.querySelector("rect").getBBox();
      return !inside(frame, box, 1.5) || [...tip.querySelectorAll("text")].some((text) => !inside(text.getBBox(), frame, 2));
    });
    // Of each series, its marks; and the numbers that are told where no mark stands.
    const series = {};
    for (const mark of marks) {
      const which = [...mark.classList].find((name) => /^s\d$/.test(name));
      if (which) series[which.slice(1)] = (series[which.slice(1)] || 0) + 1;
    }
    const solid = marks.filter((mark) =>
      mark.tagName !== "path" || !(mark.classList.contains("k") || mark.hasAttribute("opacity")));
    const places = solid.map((mark) => mark.getBBox());
    const spots = [...svg.querySelectorAll(".p > circle")].map((spot) => [spot.cx.baseVal.value, spot.cy.baseVal.value]);
    const bare = spots.filter(([x, y]) => !places.some((area) =>
      x >= area.x - 1.5 && x <= area.x + area.width + 1.5 && y >= area.y - 1.5 && y <= area.y + area.height + 1.5));
    const title = svg.querySelector("title");
    const size = svg.getBoundingClientRect();
    return {
      title: title ? title.textContent : "",
      named: svg.getAttribute("role") === "img" && Boolean(svg.getAttribute("aria-labelledby")),
      marks: marks.length,
      shown: { shows: (svg.dataset.shows || "").split(" ").filter(Boolean), series, numbers: spots.length },
      bare: bare.length,
      unseen: unseen.length,
      outside: outside.map((element) => element.textContent || element.outerHTML.slice(0, 80)),
      over,
      spilled: spilled.map((tip) => tip.textContent),
      letters: texts.length ? (11 * size.width) / box.width : 11,
    };
  });
  const active = [...document.querySelectorAll("*")].filter((element) =>
    [...element.attributes].some((attribute) => /^on/i.test(attribute.name) || /^javascript:/i.test(attribute.value)));
  return JSON.stringify({
    charts,
    pale: [...new Set(pale)],
    paper,
    figures: document.querySelectorAll("figure").length,
    headings: [...document.querySelectorAll("h2")].map((heading) => heading.textContent),
    scripts: document.scripts.length + active.length,
    wide: document.scrollingElement.scrollWidth,
    inner: document.documentElement.clientWidth,
    high: document.scrollingElement.scrollHeight,
    ids: [...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i),
    targets: [...document.querySelectorAll("a[href^='#']")].map((a) => a.getAttribute("href").slice(1))
      .filter((id) => !document.getElementById(id)),
  });
})()
