// Opens pages of the documents' site as a reader does, and posts what it saw as JSON. They are served at ../site/;
// each has a first script that keeps its errors in `errors`.
const pages = location.search.slice(1).split(",");
let frame;

async function until(found) {
  for (;;) {
    const value = found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const $ = (selector) => frame.contentDocument.querySelector(selector);
const style = (selector) => frame.contentWindow.getComputedStyle($(selector));

async function open(name, width) {
  frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px`;
  frame.src = `../site/${name}`;
  document.body.replaceChildren(frame);
  await until(() => frame.contentDocument?.readyState === "complete" && frame.contentWindow.errors);
  await until(() => frame.contentWindow.errors.length || $(".md-code__button, .md-clipboard"));
}

/** What is wider than a page: nothing may be. */
const wide = () => frame.contentDocument.documentElement.scrollWidth - frame.contentDocument.documentElement.clientWidth;

/** Colours of the page with each choice of the switch for light and dark, and which picture is shown. */
async function themes() {
  const seen = [];
  for (const input of frame.contentDocument.querySelectorAll("input[name=__palette]")) {
    input.click();
    const shown = [...frame.contentDocument.querySelectorAll("img[src*='#only-']")].filter((img) => img.offsetParent);
    seen.push({
      choice: input.ariaLabel,
      scheme: frame.contentDocument.body.dataset.mdColorScheme,
      background: style("body").backgroundColor,
      code: style(".highlight code").backgroundColor,
      pictures: [...new Set(shown.map((img) => img.src.split("#")[1]))],
    });
  }
  return seen;
}

async function search(words) {
  await until(() => !/Initializing/.test($(".md-search-result__meta").textContent));
  const field = $(".md-search__input");
  field.focus();
  field.value = words;
  field.dispatchEvent(new frame.contentWindow.KeyboardEvent("keyup", { bubbles: true }));
  await until(() => $(".md-search-result__item a"));
  return [...frame.contentDocument.querySelectorAll(".md-search-result__item a")].map((link) => link.href);
}

/** Which code a click on each label of the first tabs shows. */
function tabs() {
  const labels = [...$(".tabbed-set").querySelectorAll(".tabbed-labels label")];
  return labels.map((label) => {
    label.click();
    const blocks = [...$(".tabbed-set").querySelectorAll(".tabbed-block")];
    return [label.textContent, blocks.findIndex((block) => block.offsetParent)];
  });
}

async function main() {
  const seen = { pages: {} };
  for (const name of pages) {
    await open(name, 1300);
    const bar = $(".md-header").offsetHeight;
    const colours = [...frame.contentDocument.querySelectorAll(".highlight code span")];
    const used = new Set(colours.map((span) => frame.contentWindow.getComputedStyle(span).color));
    seen.pages[name] = {
      bar,
      colours: used.size,
      copy: Boolean($(".md-code__button[data-md-type=copy], .md-clipboard")),
      wide: wide(),
    };
    if (name === pages[0]) {
      seen.themes = await themes();
      seen.tabs = tabs();
      seen.found = await search("winograd");
    }
    seen.pages[name].errors = frame.contentWindow.errors;
    frame.style.width = "400px";
    await new Promise((resolve) => requestAnimationFrame(resolve));
    seen.pages[name].narrow = wide();
  }
  return seen;
}

main()
  .catch((error) => ({ failed: String(error.stack) }))
  .then((seen) => fetch("../end", { method: "POST", body: JSON.stringify(seen) }));
