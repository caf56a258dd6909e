"""The report in a real headless Chromium, opened from disk, at the width of a desk and of a phone."""

from __future__ import annotations

import json
from importlib.resources import files

import canary
import pandas as pd
import pytest
import reporting
from browser import Browser, find_chromium
from matplotlib.figure import Figure

from dialnb import plots
from dialnb.claims import judge_claims
from dialnb.claims.comparison import compare_table
from dialnb.explore.maps import SpaceMap
from dialnb.explore.panels import table
from dialnb.files import project_root
from dialnb.report import build
from dialnb.report.drawings import drawn_again
from dialnb.runs.engine import NotebookRun
from dialnb.runs.figures import redraw
from tools.audit.drawings import drawings

WIDTHS = (1280, 390)
CONTRAST = """
(() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const part = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const back = (node) => {
    for (; node; node = node.parentElement) {
      const colour = parse(getComputedStyle(node).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const bad = new Set();
  for (const node of document.querySelectorAll("main *, header *, nav *, footer *")) {
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest(".hidden, math, svg") || !node.checkVisibility()) continue;
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(back(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.add(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return [...bad];
})()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return reporting.built_site(tmp_path_factory)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    program = find_chromium()
    if program is None:
        pytest.skip(
            "no Chromium on the PATH: install it (Debian: apt install chromium) to test the report in a browser"
        )
    opened = Browser(program, tmp_path_factory.mktemp("chromium") / "profile")
    yield opened
    opened.close()


def pages(site) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])  # colours move nothing
def test_every_page_opens_from_disk_without_errors_outside_requests_or_sideways_scrolling(browser, site, width, scheme):
    browser.problems.clear()
    browser.requests.clear()
    for name in pages(site):
        browser.open((site / name).as_uri(), width, scheme)
        assert browser.run("document.querySelector('h1').textContent.length") > 1
        assert browser.run("document.documentElement.scrollWidth") <= width, name
        assert browser.run("getComputedStyle(document.querySelector('.bar')).position") == "sticky", name
    assert browser.problems == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(browser, site, scheme):
    for name in ("index.html", "dse-quick.html"):
        browser.open((site / name).as_uri(), 1280, scheme)
        assert browser.run(CONTRAST) == [], name


def test_the_schemes_differ(browser, site):
    colours = []
    for scheme in ("light", "dark"):
        browser.open((site / "index.html").as_uri(), 1280, scheme)
        colours.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert len(set(colours)) == 2


def test_every_link_of_every_page_leads_somewhere(browser, site):
    for name in pages(site):
        browser.open((site / name).as_uri(), 1280)
        for link in browser.run("[...document.links].map((link) => link.href)"):
            path, _, anchor = link.partition("#")
            assert path.startswith(site.as_uri()), link
            target = site / path.removeprefix(site.as_uri() + "/")
            assert target.is_file(), link
            assert not anchor or f'id="{anchor}"' in target.read_text(encoding="utf-8"), link


COLUMN = """
[...document.querySelector("#T2").closest("details").querySelectorAll("tbody")].map((body) =>
  [...body.rows].filter((row) => !row.classList.contains("heading")).map((row) => Number(row.cells[1].dataset.sort)))
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_tables_sort_within_their_blocks_by_mouse_and_by_keyboard(browser, site, width):
    browser.open((site / "dse-quick.html").as_uri(), width)
    header = 'document.querySelector("#T2").closest("details").querySelectorAll("thead th")[1]'
    before = browser.run(COLUMN)
    assert browser.run(f"{header}.getAttribute('aria-sort')") == "none"
    browser.run(f"{header}.querySelector('button').click()")
    once = browser.run(COLUMN)
    assert browser.run(f"{header}.getAttribute('aria-sort')") == "descending"
    assert once == [sorted(block, reverse=True) for block in before] and once != before
    browser.run(f"{header}.querySelector('button').focus()")
    browser.press("Enter")
    assert browser.run(f"{header}.getAttribute('aria-sort')") == "ascending"
    assert browser.run(COLUMN) == [sorted(block) for block in before]


def test_the_first_tab_reaches_the_skip_link(browser, site):
    browser.open((site / "index.html").as_uri(), 1280)
    browser.press("Tab")
    assert browser.run("document.activeElement.className") == "skip"


def test_commands_are_copied_by_their_button(browser, site):
    browser.open((site / "dse-quick.html").as_uri(), 1280)
    browser.run("window.copied = []; document.execCommand = () => copied.push(document.activeElement.value)")
    browser.run("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    label = browser.run(
        "document.querySelector('[data-copy]').click(), document.querySelector('[data-copy]').textContent"
    )
    assert browser.run("copied") == ["dialnb run dse --profile quick --seed 1"]
    assert label.startswith("Copied")


def test_a_link_to_a_folded_table_or_claim_unfolds_it(browser, site):
    for anchor in ("T9", "claim-out-of-scope"):
        browser.open("about:blank", 1280)
        browser.open(f"{(site / 'dse-quick.html').as_uri()}#{anchor}", 1280)
        assert browser.run(f"document.getElementById('{anchor}').closest('details').open"), anchor


def test_the_page_can_be_printed(browser, site):
    browser.open((site / "dse-quick.html").as_uri(), 1280)
    assert len(browser.call("Page.printToPDF", printBackground=False)["data"]) > 20_000


def test_tables_fit_on_printed_paper(browser, site):
    a4 = 718  # pixels between its margins
    browser.open((site / "dse-quick.html").as_uri(), a4)
    browser.call("Emulation.setEmulatedMedia", media="print")
    wide = (
        "[...document.querySelectorAll('details table')].filter((table) => table.getBoundingClientRect().right > 720)"
    )
    found = browser.run(f"{wide}.map((table) => table.caption?.textContent)")
    browser.call("Emulation.setEmulatedMedia", media="")
    assert found == []


def test_a_phone_breaks_no_word_of_a_row_and_shows_where_a_table_goes_on(browser, site):
    browser.open((site / "tadse-smoke.html").as_uri(), 390)
    cells = "[...document.querySelectorAll('.results th[scope=row]')]"
    browser.run("document.querySelectorAll('details').forEach((node) => { node.open = true; })")
    cut = f"{cells}.filter((cell) => cell.textContent.includes('augmentation') && cell.scrollWidth > cell.clientWidth)"
    assert browser.run(f"{cut}.length") == 0
    word = f"""(() => {{
      const text = {cells}.find((cell) => cell.textContent.includes('augmentation')).firstChild, range = new Range();
      const from = text.textContent.indexOf('augmentation');
      range.setStart(text, from);
      range.setEnd(text, from + 'augmentation'.length);
      return range.getClientRects().length;
    }})()"""
    assert browser.run(word) == 1
    assert "gradient" in browser.run("getComputedStyle(document.querySelector('.scroll')).backgroundImage")


# --- text is text -----------------------------------------------------------------------------------------------------

TOUCH = """
(() => {
  for (const node of document.querySelectorAll("body *"))
    for (const kind of ["mouseover", "click", "focus", "load", "error", "toggle"])
      if (!(kind === "click" && node.closest("a[href]"))) node.dispatchEvent(new Event(kind, {bubbles: true}));
  const links = [...document.links].map((link) => link.protocol).filter((name) => name !== "file:");
  const outside = "main script, main iframe, main form, main button:not([data-copy], .sort), object, svg, base";
  return [window.ran ?? 0, document.querySelectorAll(outside).length, links];
})()
"""


def test_no_page_of_a_hostile_run_runs_script_or_asks_for_anything(browser, tmp_path_factory):
    site = reporting.hostile_site(tmp_path_factory)
    browser.problems.clear()
    browser.requests.clear()
    assert len(pages(site)) == 8  # an overview, six papers, one notebook
    for name in pages(site):
        browser.open((site / name).as_uri(), 1280)
        assert browser.run(TOUCH) == [0, 0, []], name
        assert browser.run("document.body.textContent.includes('window.ran = 1')") or not name.startswith("dse-"), name
    for path in site.rglob("*.svg"):
        browser.open(path.as_uri(), 1280)
        assert not browser.run("window.ran"), path
    assert browser.problems == []  # not even the content policy had to step in
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []


@pytest.fixture
def drawn_by_others(tmp_path):
    """The report of a run with hostile drawings, the address of a canary, and what was asked of it."""
    with canary.served() as (address, asked):
        run = reporting.write_run(tmp_path / "run", "dse", pd.DataFrame())
        reporting.write_figure(run / "figures")
        about = json.loads((run / "figures/F3.json").read_text(encoding="utf-8"))
        for name, drawing in drawings(address).items():
            (run / f"figures/{name}.svg").write_bytes(drawing)
            (run / f"figures/{name}.pdf").write_bytes(b"%PDF-1.4")
            (run / f"figures/{name}.json").write_text(json.dumps(about | {"name": name}), encoding="utf-8")
        reporting.write_notebook(run / "notebook.ipynb")
        build([run], tmp_path / "site")
        yield run / "figures", tmp_path / "site", asked


def opened(browser, address: str) -> int:
    """Whether script ran in a file, once it had its time."""
    browser.open(address, 1280)
    return browser.run("new Promise((done) => setTimeout(() => done(window.ran ?? 0), 50))")


@pytest.mark.parametrize("place", ["server", "disk"])
def test_no_file_of_a_report_runs_script_or_asks_for_anything_from_a_server_or_from_disk(
    browser, drawn_by_others, place
):
    _, site, asked = drawn_by_others
    kinds = {path.suffix: path for path in sorted(site.rglob("*")) if path.is_file()}
    others = (".png", ".csv", ".md", ".tex", ".json", ".ipynb", ".css", ".js")  # one of each, since none is a page
    assert kinds.keys() == {".html", ".svg", *others}
    files = [*site.rglob("*.html"), *site.rglob("*.svg"), *(kinds[kind] for kind in others)]
    with canary.served(site) as (server, _):
        home = server if place == "server" else site.as_uri()
        ran = [path.name for path in files if opened(browser, f"{home}/{path.relative_to(site).as_posix()}")]
    assert ran == [] and asked == []


def test_the_same_drawings_act_where_they_are_not_drawn_again(browser, drawn_by_others):
    """Without this, the test above could not fail."""
    figures, _, asked = drawn_by_others
    with canary.served(figures) as (server, _):
        ran = {path.stem for path in sorted(figures.glob("*.svg")) if opened(browser, f"{server}/{path.name}")}
    assert {"script", "script-in-utf-16", "html", "handler"} <= ran
    assert {"/sheet", "/import", "/rule", "/font", "/fill", "/mask", "/cursor", "/image"} <= set(asked)


def patterns_and_pictures() -> Figure:
    """A figure with what few figures have: hatches, a picture, clipped and dashed lines, half-transparent areas."""
    figure = Figure(figsize=(6, 3))
    left, right = figure.subplots(1, 2)
    left.bar([1, 2], [3, 4], hatch="//", alpha=0.5, edgecolor="red")
    left.plot([0, 3], [1, 9], "--", marker="o", clip_on=True)
    right.imshow([[0, 1], [2, 3]])
    right.text(0, 0, "$x^2$ & <text>")
    return figure


def test_drawings_look_the_same_when_they_are_drawn_again(browser, tmp_path):
    plots.save(patterns_and_pictures(), tmp_path / "own", ("svg",))
    for slug in ("dse", "wmdc"):
        redraw(project_root() / "papers" / slug / "results" / "gpu", ("svg",), out=tmp_path, pattern="F[12]")
    shown = set()
    for path in sorted(tmp_path.glob("*.svg")):
        browser.open(path.as_uri(), 1280)
        before = browser.picture()
        again = tmp_path / "again.svg"
        again.write_text(drawn_again(path.read_bytes()), encoding="utf-8")
        browser.open(again.as_uri(), 1280)
        assert browser.picture() == before, path.name
        shown.add(before)
    assert len(shown) >= 3


def test_the_content_policy_alone_stops_script_in_a_page(browser, site):
    browser.open((site / "index.html").as_uri(), 1280)
    browser.run(f"document.body.insertAdjacentHTML('beforeend', {json.dumps(reporting.SCRIPT)})")
    browser.run("document.body.append(Object.assign(document.createElement('script'), {text: 'window.ran = 1'}))")
    assert browser.run("new Promise((done) => setTimeout(() => done(window.ran ?? 0), 200))") == 0


def test_tables_panels_and_maps_of_a_notebook_show_hostile_names_as_text(browser, tmp_path):
    name = reporting.SCRIPT
    rows = reporting.intent_rows({"DSE": 50.0}, seeds=2, encoder=name)
    gap = [{"table": "T2", "model": "PairSupCon", "reason": name}]
    frame = pd.DataFrame({name: [name], "similarity": [0.5]}, index=[name])
    shown = [compare_table("dse", "T2", rows, gap), judge_claims("dse", rows, gap)]
    shown += [table(frame, name, index=True), table(frame, formats={"similarity": "{:.2f}"})]
    told = {"x": 0.0, "y": 0.0, "preservation": 1.0, "text": name, "detail": name, "method": name}
    drawn = SpaceMap(pd.DataFrame([{"panel": name, "projection": p, **told} for p in (name, "a")]), ("method",), name)
    plotly = (files("plotly") / "package_data" / "plotly.min.js").as_uri()
    parts = [f"<section>{thing._repr_html_()}</section>" for thing in shown]
    figure = json.dumps(drawn.interactive()).replace("<", "\\u003c")
    draw = f'<script src="{plotly}"></script><div id="map"></div><script>Plotly.newPlot("map", {figure})</script>'
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8>{''.join(parts)}{draw}", encoding="utf-8")
    browser.open((tmp_path / "page.html").as_uri(), 1280)
    browser.wait("document.querySelector('.legendtext')", 20)
    assert browser.run("window.ran ?? 0") == 0
    texts = browser.run("[...document.querySelectorAll('section')].map((node) => node.textContent)")
    assert all(name in text for text in texts)
    for part in (".legendtext", ".gtitle", ".updatemenu-item-text"):
        assert name in browser.run(f"document.querySelector('{part}').textContent"), part


@pytest.mark.parametrize(("width", "height", "papers"), [(1280, 900, 5), (390, 844, 2)])
def test_the_first_screen_after_runs_of_this_machine_says_what_was_found(browser, tmp_path, width, height, papers):
    runs = reporting.write_runs(tmp_path / "runs")
    page = build(runs, tmp_path / "site", here=[NotebookRun("dse", "ran", "", 100.0, runs[0])])
    browser.problems.clear()
    for path in (page, page.with_name("record-dse.html")):
        browser.open(path.as_uri(), width, height=height)
        assert browser.run("document.documentElement.scrollWidth <= innerWidth") and browser.problems == []
        assert browser.run(CONTRAST) == []
    browser.open(page.as_uri(), width, height=height)
    ends = "[...document.querySelectorAll('.findings li p')].map((found) => found.getBoundingClientRect().bottom)"
    assert sum(end <= height for end in browser.run(ends)) >= papers
    assert browser.run("document.querySelector('.total').getBoundingClientRect().bottom") < height
