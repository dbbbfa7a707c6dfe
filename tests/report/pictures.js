// Takes pictures of the top of a report, light and dark, for the documentation.
//
//   node pictures.js CHROMIUM REPORT.html DIR
//
// Writes DIR/light.png and DIR/dark.png.

import { join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import puppeteer from 'puppeteer-core';

const [chromium, report, dir] = process.argv.slice(2);
const browser = await puppeteer.launch({
  executablePath: chromium,
  args: ['--no-sandbox', '--disable-gpu', '--hide-scrollbars'],
});
try {
  const page = await browser.newPage();
  await page.setJavaScriptEnabled(false);
  await page.setViewport({ width: 1000, height: 1500 });
  for (const scheme of ['light', 'dark']) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
    await page.goto(pathToFileURL(resolve(report)).href);
    await page.screenshot({ path: join(dir, `${scheme}.png`) });
  }
} finally {
  await browser.close();
}
