// Data and strings -> elements, numbers in words, the theme and its colours.

const $ = (id) => document.getElementById(id);
const data = JSON.parse($("data").textContent);

// Every string of the data goes through here and becomes text, never markup.
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.setAttribute("class", value);
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const count = (number) => number.toLocaleString("en");
const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

function announce(text) {
  $("announce").textContent = text;
}

// Theme. What is drawn and not styled is drawn anew when it changes.
const root = document.documentElement;
const themed = []; // functions that draw
const isDark = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  root.dataset.theme = name;
  colours.clear();
  for (const draw of themed) draw();
}
const colours = new Map();
function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(root).getPropertyValue(`--${name}`).trim());
  return colours.get(name);
}
setTheme(isDark.matches ? "dark" : "light");
isDark.addEventListener("change", () => setTheme(isDark.matches ? "dark" : "light"));
$("theme").addEventListener("click", () => setTheme(root.dataset.theme === "dark" ? "light" : "dark"));
let screenTheme = null; // while a light page is printed
addEventListener("beforeprint", () => { screenTheme = root.dataset.theme; setTheme("light"); });
addEventListener("afterprint", () => { if (screenTheme) setTheme(screenTheme); });
