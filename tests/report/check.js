// Looks at reports in Chromium, at three widths, light and dark, with JavaScript switched off for
// the page, and says everything that is wrong with them.
//
//   node check.js CHROMIUM [--screenshots DIR] DIR...
//
// Each DIR holds a report.html, and a results.json if the page is of a single run.

import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';

const WIDTHS = [1200, 768, 390];
const SCHEMES = ['light', 'dark'];
const NARROW = 640; // 40rem of the style sheet
const MOST_ROWS = 400; // a series' rows in a data table

const [chromium, ...rest] = process.argv.slice(2);
let shots = null;
if (rest[0] === '--screenshots') {
  shots = resolve(rest[1]);
  rest.splice(0, 2);
}

/// How many rows each plot's data table must have, and whether its points were found between two
/// values, from the results themselves.
function expectedRows(dir) {
  const file = join(dir, 'results.json');
  if (!existsSync(file)) return null;
  const plots = JSON.parse(readFileSync(file, 'utf8')).flatMap((line) => line.plots ?? []);
  return plots.map((plot) => ({
    rows: plot.series.reduce((sum, { points }) => {
      const step = Math.max(1, Math.ceil(points.length / MOST_ROWS));
      return sum + Math.ceil(points.length / step);
    }, 0),
    // A band needs two points, and bars that are one each have whiskers.
    spread: plot.series.some(({ mark, spread }) => spread && (mark !== 'line' || spread.length > 1)),
  }));
}

/// Runs in the page; gives what is wrong.
function inspect(width, narrowFrom, expected) {
  const wrong = [];
  const say = (what) => wrong.push(what);
  const root = document.documentElement;
  const name = (e) => `<${e.tagName.toLowerCase()}> "${e.textContent.trim().slice(0, 40)}"`;

  if (!document.title.trim()) say('no title');
  if (root.lang !== 'en') say(`lang is "${root.lang}"`);
  const levels = [...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map((h) => +h.tagName[1]);
  if (levels[0] !== 1 || levels.filter((l) => l === 1).length !== 1) say('not one h1 at the top');
  levels.forEach((l, i) => i > 0 && l > levels[i - 1] + 1 && say(`h${l} follows h${levels[i - 1]}`));
  if (root.scrollWidth > root.clientWidth) {
    say(`the page is ${root.scrollWidth} px wide in ${root.clientWidth} px`);
  }
  for (const a of document.querySelectorAll('a[href^="#"]')) {
    if (!document.getElementById(a.getAttribute('href').slice(1))) say(`${name(a)} leads nowhere`);
  }
  if (document.querySelector('h2')?.textContent !== 'Findings' && !document.title.includes('several')) {
    say('it does not open with the findings');
  }
  for (const legend of document.querySelectorAll('.legend')) {
    const names = [...legend.querySelectorAll('li')].map((li) => li.textContent.trim());
    if (new Set(names).size !== names.length) say(`a legend names a line twice: ${names.join('; ')}`);
  }

  // What is wider than the screen shows that it is, can be scrolled with the keyboard, and keeps the
  // rows' names in sight on a phone.
  const tables = [...document.querySelectorAll('.scroll')].filter((e) => !e.closest('details'));
  const wide = tables.filter((e) => e.scrollWidth > e.clientWidth + 1);
  if (width <= narrowFrom && wide.length === 0) say('no table was judged for scrolling');
  for (const e of wide) {
    const style = getComputedStyle(e);
    const shades = style.backgroundImage.split('gradient(').length - 1;
    if (shades < 4 || !style.backgroundAttachment.includes('local')) say(`${name(e)} scrolls invisibly`);
    if (e.tabIndex !== 0 || !e.getAttribute('aria-label')) say(`${name(e)} cannot be scrolled by keyboard`);
    e.scrollLeft = e.scrollWidth;
    const th = e.querySelector('tbody th');
    const seen = th.getBoundingClientRect().left >= e.getBoundingClientRect().left - 1;
    if (width <= narrowFrom && !seen) say(`${name(e)}: the rows' names scroll away`);
    e.scrollLeft = 0;
  }

  for (const th of document.querySelectorAll('th')) {
    if (!['col', 'row'].includes(th.scope)) say(`${name(th)} has no scope`);
  }

  // Figures: one drawing of the right shape, and its numbers.
  const figures = [...document.querySelectorAll('figure')];
  if (figures.length === 0) say('no figure at all');
  if (expected && expected.length !== figures.length) {
    say(`${figures.length} figures of ${expected.length} plots`);
  }
  figures.forEach((figure, i) => {
    const title = figure.querySelector('figcaption')?.textContent.slice(0, 40);
    const seen = [...figure.querySelectorAll('svg.plot')].filter((s) => {
      const box = s.getBoundingClientRect();
      return box.width > 100 && box.height > 100;
    });
    const want = width <= narrowFrom ? 'narrow' : 'wide';
    if (seen.length !== 1) say(`${title}: ${seen.length} drawings are seen`);
    else if (!seen[0].classList.contains(want)) say(`${title}: not the ${want} drawing`);
    const rows = figure.querySelectorAll('details tbody tr').length;
    if (rows === 0 || (expected && rows !== expected[i]?.rows)) {
      say(`${title}: ${rows} rows of data instead of ${expected?.[i]?.rows}`);
    }
    if (expected?.[i]?.spread && !figure.querySelector('svg .band, svg .whisker')) {
      say(`${title}: neither bands nor whiskers`);
    }
    for (const svg of seen) drawing(svg, title);
  });

  function drawing(svg, title) {
    const view = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll('text')].filter((t) => t.textContent.trim());
    // In the drawing's own units, also where a text is turned.
    const placed = (t) => {
      const b = t.getBBox();
      const m = svg.getScreenCTM().inverse().multiply(t.getScreenCTM());
      const corners = [0, 1].flatMap((i) =>
        [0, 1].map((j) => new DOMPoint(b.x + i * b.width, b.y + j * b.height).matrixTransform(m)),
      );
      const [xs, ys] = [corners.map((c) => c.x), corners.map((c) => c.y)];
      const [x, y] = [Math.min(...xs), Math.min(...ys)];
      return { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y };
    };
    const boxes = texts.map((t) => ({ t, b: placed(t) }));
    for (const { t, b } of boxes) {
      const out =
        b.x < -0.5 || b.y < -0.5 || b.x + b.width > view.width + 0.5 || b.y + b.height > view.height + 0.5;
      if (out) say(`${title}: ${name(t)} leaves the drawing`);
    }
    const labels = boxes.filter(({ t }) => t.matches('.tick, .axis, .value'));
    labels.forEach(({ t, b }, i) => {
      for (const { t: u, b: c } of labels.slice(i + 1)) {
        // Two lines of one label may touch; a pixel is no overlap.
        const x = Math.min(b.x + b.width, c.x + c.width) - Math.max(b.x, c.x);
        const y = Math.min(b.y + b.height, c.y + c.height) - Math.max(b.y, c.y);
        if (x > 1 && y > 4) say(`${title}: ${name(t)} overlaps ${name(u)}`);
      }
    });
  }

  // Contrast by WCAG 2: relative luminance of the text and of the first opaque background.
  const parse = (text) => (text.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = ([r, g, b]) => {
    const part = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c;
    }
    return [255, 255, 255];
  };
  const judged = new Set();
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.tagName === 'TITLE' || e.getClientRects().length === 0) continue;
    const style = getComputedStyle(e);
    const text = parse(e instanceof SVGElement ? style.fill : style.color);
    const ground = behind(e);
    const [a, b] = [luminance(text), luminance(ground)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    const kind = `${e.tagName} ${e.getAttribute('class') ?? ''} ${text} on ${ground}`;
    if (ratio < 4.5 && !judged.has(kind)) say(`contrast ${ratio.toFixed(2)}: ${name(e)} (${kind})`);
    judged.add(kind);
  }
  for (const want of ['P', 'TD', 'CAPTION', 'LI', 'text']) {
    if (![...judged].some((k) => k.startsWith(`${want} `))) say(`no ${want} was judged for contrast`);
  }
  return { wrong, judged: judged.size, figures: figures.length };
}

const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--hide-scrollbars'],
});
let [problems, looks] = [0, 0];
try {
  for (const dir of rest) {
    const url = pathToFileURL(resolve(dir, 'report.html')).href;
    const expected = expectedRows(dir);
    const page = await browser.newPage();
    await page.setJavaScriptEnabled(false);
    const heard = [];
    page.on('request', (r) => r.url().startsWith('file:') || heard.push(`asks for ${r.url()}`));
    page.on('console', (m) => ['error', 'warn'].includes(m.type()) && heard.push(`console: ${m.text()}`));
    page.on('pageerror', (e) => heard.push(`error: ${e.message}`));
    for (const scheme of SCHEMES) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
      for (const width of WIDTHS) {
        await page.setViewport({ width, height: 1400 });
        await page.goto(url);
        if (shots) {
          await page.screenshot({ path: join(shots, `report-${scheme}-${width}.png`), fullPage: width < 500 });
        }
        // The data tables are part of the page.
        await page.$$eval('details', (all) => all.forEach((d) => (d.open = true)));
        const found = await page.evaluate(inspect, width, NARROW, expected);
        looks += 1;
        for (const what of [...found.wrong, ...heard.splice(0)]) {
          problems += 1;
          console.log(`${dir}, ${scheme}, ${width} px: ${what}`);
        }
      }
    }
    await page.close();
  }
} finally {
  await browser.close();
}
console.log(`${looks} looks, ${problems} problems`);
process.exitCode = problems > 0 || looks === 0 ? 1 : 0;
