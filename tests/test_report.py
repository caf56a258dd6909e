"""The report's pages as files: what they hold, that their links resolve, and that nothing loads from outside."""

from __future__ import annotations

import base64
import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import unquote

import nbformat
import pandas as pd
import pytest
import reporting

from dialnb import plots
from dialnb.claims import HOLDS, Judged, judge_claims, load_claims
from dialnb.claims.papers import SLUGS, STUDIES, load_paper
from dialnb.cli import main
from dialnb.errors import DataError
from dialnb.files import find_runs, read_json, read_yaml, write_json
from dialnb.report import build
from dialnb.report.gather import Group, gather, recorded_runs
from dialnb.report.pages import notebook_body, with_mathml
from dialnb.report.site import _agreement
from dialnb.runs.engine import NotebookRun

ROOT = Path(__file__).resolve().parent.parent
PAPERS = ROOT / "papers"


class Page(HTMLParser):
    """Links, ids, text and tags of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.ids: list[str] = []
        self.tags: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.tags.append((tag, values))
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values["href"]] if tag == "a" else []
        self.loads += [values[name] for name in ("src", "href") if tag != "a" and values.get(name)]

    def handle_data(self, data):
        self.text += data

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", self.text)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    return reporting.built_site(tmp_path_factory)


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Page]:
    return {path.relative_to(site).as_posix(): Page(path) for path in sorted(site.rglob("*.html"))}


def test_there_is_an_overview_one_page_per_paper_and_the_executed_notebook(pages):
    names = {"index.html", "dse-quick.html", "ums-gpu.html", "tadse-smoke.html", "dialoguecse.html", "wmdc.html"}
    assert set(pages) == names | {"matrix.html", "dse-quick/seed1/notebook.html"}


def test_every_link_resolves_and_nothing_is_loaded_from_outside(site, pages):
    for name, page in pages.items():
        assert len(page.ids) == len(set(page.ids)), name
        for link in [*page.links, *page.loads]:
            if link.startswith("data:"):
                continue
            assert "://" not in link, f"{name}: {link}"
            path, _, anchor = unquote(link).partition("#")
            target = (site / name).parent / path if path else site / name
            assert target.is_file(), f"{name}: {link}"
            found = pages.get(target.resolve().relative_to(site.resolve()).as_posix())
            assert not anchor or anchor in found.ids, f"{name}: {link}"


def test_the_overview_counts_verdicts_and_says_what_ran_where_and_when(pages):
    overview = pages["index.html"].words
    claims = sum(len(load_claims(slug)) for slug in SLUGS)
    assert f"{claims} claims" in overview
    for text in ("quick", "mini", "NVIDIA H200", "2 CPU cores", "2025-11-02", "left out: no notebook yet", "failed"):
        assert text in overview
    assert overview.count("holds: ") + overview.count("undecided: ") >= 10  # the marks, in words for screen readers


def test_every_published_table_and_every_claim_is_on_its_papers_page(pages):
    for slug in STUDIES:
        page = next(page for name, page in pages.items() if name.startswith(slug) and "/" not in name)
        for table in load_paper(slug).tables.values():
            assert table.id in page.ids and table.caption in page.text
        for claim in load_claims(slug):
            assert f"claim-{claim.id}" in page.ids and claim.statement in page.text


def test_cells_show_ours_with_interval_the_papers_value_and_the_difference(pages):
    text = pages["dse-quick.html"].words
    assert re.search(r"6\d\.\d\d ± \d+\.\d\d, paper: 62\.53 −\d\.\d\d", text)
    assert "The paper's average over the columns that ran" in text
    assert "substitute encoder mini; bundled part of BANKING77." in text
    assert "not run PairSupCon: public checkpoint; needs the hub." in text
    assert "Appen-A, Appen-H: private data of the authors" in text


def test_verdicts_stand_with_evidence_and_reasons(pages):
    text = pages["dse-quick.html"].words
    found = (
        r"✓ holds ○●○.*?DSE beats the raw encoder.*?\+1\d\.\d\d \[\+1\d\.\d\d, \+1\d\.\d\d\], "
        r"smaller than printed \(\+19\.30\), 3 trainings, 30 draws"
    )
    assert re.search(found, text)
    assert (
        "Rests on: encoder mini (ours, from scratch), 3 trainings each" in text
        and "The paper's own cells agree." in text
    )
    assert re.search(r"\? undecided: one training .*?DSE-dropout gets worse with training", text)
    assert "≠ contradicted by the paper" in text and re.search(r"\d+ claims not run, with reasons", text)


def test_a_failed_run_says_so_without_injecting_markup(site, pages):
    assert "This run failed: DataError: <b>no</b> SNIPS" in pages["tadse-smoke.html"].words
    assert "<b>no</b>" not in (site / "tadse-smoke.html").read_text(encoding="utf-8")


def test_tables_can_be_downloaded_in_three_formats_and_figures_with_their_data(site):
    for suffix, start in (("csv", "paper,table,"), ("md", "| setting |"), ("tex", r"\begin{tabular}")):
        assert (site / f"dse-quick/tables/T2.{suffix}").read_text(encoding="utf-8").startswith(start)
    assert {path.name for path in (site / "dse-quick/figures").iterdir()} == {"F3.png", "F3.svg", "F3.csv"}


def test_figures_that_are_kept_as_data_alone_are_drawn(tmp_path):
    run = reporting.write_run(tmp_path / "run", "dse", pd.DataFrame())
    reporting.write_figure(run / "figures")
    for picture in ("F3.png", "F3.svg"):
        (run / "figures" / picture).unlink()
    path = run / "figures" / "F3.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(about | {"function": "dialnb.plots:curves"}), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(plots.FIGURES, "curves", lambda data: reporting.Figure(figsize=(2, 2)))
        build([run], tmp_path / "site")
    assert (tmp_path / "site/dse-quick/figures/F3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("change", "judged"), [({}, "holds"), ({"id": "of-old"}, "not run")])
def test_verdicts_kept_with_a_record_are_shown_unless_some_are_missing(tmp_path, monkeypatch, change, judged):
    run = reporting.write_run(tmp_path / "papers/ums/results/gpu", "ums", pd.DataFrame())
    kept = judge_claims("ums", pd.DataFrame()).to_dict()
    kept[0] |= {"verdict": "holds"} | change
    write_json(run / "claims.json", kept)
    monkeypatch.setattr("dialnb.report.gather.recorded_runs", lambda: [run])
    (group,) = (group for group in gather([run]) if group.runs)
    assert group.judged.to_dict()[0]["verdict"] == judged
    assert group.judge().to_dict()[0]["verdict"] == "not run"


def test_pages_are_made_for_keyboards_and_screen_readers(pages):
    for name, page in pages.items():
        tags = page.tags
        assert ("html", {"lang": "en"}) in tags and sum(tag == "h1" for tag, _ in tags) == 1, name
        assert any(values.get("class") == "skip" and values.get("href") == "#main" for _, values in tags)
        assert all(values.get("scope") for tag, values in tags if tag == "th") or "notebook" in name
        assert all("alt" in values for tag, values in tags if tag == "img")
        assert all(values.get("tabindex") == "0" for _, values in tags if values.get("class") == "scroll")


def test_commands_to_run_again_are_there_to_copy(pages):
    copies = [values["data-copy"] for _, values in pages["dse-quick.html"].tags if "data-copy" in values]
    assert "dialnb run dse --profile quick --seed 1" in copies
    assert "papermill notebooks/dse.ipynb out.ipynb -p profile quick" in copies


def test_the_notebook_page_keeps_outputs_and_equations_and_drops_what_loads_from_outside(site):
    html = (site / "dse-quick/seed1/notebook.html").read_text(encoding="utf-8")
    assert "<math" in html and "<mfrac>" in html and "<code>$code$</code>" in html
    assert "hello" in html and "<b>kept</b>" in html
    assert "cdn.example.org" not in html and "example.org" not in html


def test_pictures_of_a_notebook_are_files_beside_its_page(site):
    folder = site / "dse-quick" / "seed1"
    html = (folder / "notebook.html").read_text(encoding="utf-8")
    (name,) = re.findall(r'<img[^>]* src="([^"]+)"', html)
    assert (folder / name).read_bytes() == base64.b64decode(reporting.DOT)


def test_an_equation_beyond_the_converter_is_shown_as_written():
    assert with_mathml("cost $5 and $6") == "cost $5 and $6"
    assert "<code>" in with_mathml(r"$$\left( x$$") or "<math" in with_mathml(r"$$\left( x$$")


def test_notebook_headings_leave_the_first_level_to_the_page(tmp_path):
    reporting.write_notebook(tmp_path / "n.ipynb")
    assert "<h1" not in notebook_body(tmp_path / "n.ipynb")


def test_every_picture_of_a_notebook_has_words_and_its_code_is_coloured(tmp_path):
    dot = "iVBORw0KGgo="
    drawn = nbformat.v4.new_output("display_data", data={"image/png": dot})
    cells = [nbformat.v4.new_code_cell("import dialnb", outputs=[drawn])]
    cells.append(nbformat.v4.new_markdown_cell(f"![A dot](data:image/png;base64,{dot})"))
    (tmp_path / "n.ipynb").write_text(nbformat.writes(nbformat.v4.new_notebook(cells=cells)), encoding="utf-8")
    html = notebook_body(tmp_path / "n.ipynb")
    assert re.findall(r'<img[^>]*alt="([^"]*)"', html) == ["No description has been provided for this image", "A dot"]
    assert html.count("alt=") == 2 and '<span class="kn">import</span>' in html


def test_seeds_of_one_setting_are_pooled_and_settings_kept_apart(tmp_path):
    rows = reporting.intent_rows({"DSE": 50.0, "BERT": 40.0}, seeds=2)
    rows = rows[rows.train_seed == 0].drop(columns="train_seed")  # then it is the run's
    folders = [reporting.write_run(tmp_path / f"s{seed}", "dse", rows, seed=seed) for seed in (1, 2)]
    folders.append(reporting.write_run(tmp_path / "e", "dse", rows, seed=3, set_by_hand={"encoder": "org/other"}))
    groups = [group for group in gather(find_runs([tmp_path])) if group.slug == "dse"]
    assert [group.name for group in groups] == ["dse-quick-encoder-org-other", "dse-quick"] or [
        group.name for group in groups
    ] == ["dse-quick", "dse-quick-encoder-org-other"]
    pooled = next(group for group in groups if group.name == "dse-quick")
    assert sorted(pooled.results.train_seed.unique()) == [1, 2] and len(pooled.runs) == 2


def test_the_page_counts_every_training_of_a_pooled_record(tmp_path):
    rows = reporting.intent_rows({"DSE": 50.0, "BERT": 40.0}, seeds=2)
    joined = {"pooled": [{"seed": 2}, {"seed": 5}]}
    reporting.write_run(tmp_path / "runs" / "dse", "dse", rows, **joined)
    several = {"parameters": {"seed": 1, "encoder": "mini", "train_seeds": [1, 2, 3]}}
    reporting.write_run(tmp_path / "runs" / "wmdc", "wmdc", rows.iloc[:0], **several)
    build(find_runs([tmp_path / "runs"]), tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "<td>1, 2, 5</td>" in page and "<td>1, 2, 3</td>" in page


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        ([0.28], "Of the failures, 1 is from 28 % of the printed training."),
        ([0.28, 0.28], "Of the failures, 2 are from 28 % of the printed training."),
        ([0.28, 0.067, 0.28], "Of the failures, 2 are from 28 % and 1 from 6.7 % of the printed training."),
    ],
)
def test_the_first_page_says_from_how_much_training_failures_are(tmp_path, monkeypatch, shares, sentence):
    """Failures have a verdict: they are not among what keeps the rest from one."""
    group = gather([reporting.write_run(tmp_path / "run", "dse", pd.DataFrame())])[0]
    claims = group.judged.frame.head(1 + len(shares))
    limits = [f"{share} of the printed training" for share in shares]
    judged = claims.assign(
        verdict=["undecided", *["fails"] * len(shares)],
        qualifier=["one training", *limits],
        share=[1.0, *shares],
        strength="●●○",
    )
    monkeypatch.setattr(Group, "judged", property(lambda each: Judged(judged) if each.runs else each.judge()))
    words = Page(build([tmp_path / "run"], tmp_path / "site")).words
    (rest,) = words.partition(f"{sentence} ")[2].split(" each mark below")[:1]
    assert rest.endswith(" neither hold nor fail, among them 1 undecided: one training;")


def test_a_model_called_none_survives_the_file(tmp_path):
    rows = pd.DataFrame([{"model": "None", "table": "T5", "value": 0.8, "seed": 0}])
    group = next(g for g in gather([reporting.write_run(tmp_path / "r", "ums", rows)]) if g.slug == "ums")
    assert group.results.model.tolist() == ["None"]


def test_the_command_reports_run_folders_and_refuses_what_is_none(tmp_path, capsys):
    reporting.write_run(tmp_path / "runs" / "a", "wmdc", pd.DataFrame(), profile="smoke")
    assert main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "site")]) == 0
    assert f"Report: {(tmp_path / 'site' / 'index.html').as_uri()}" in capsys.readouterr().out
    assert main(["report", str(tmp_path / "site"), "-o", str(tmp_path / "other")]) == 1
    assert "expected a file run.json" in capsys.readouterr().err


def test_a_folder_with_other_files_is_never_emptied(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match="no report"):
        build([], tmp_path)
    assert (tmp_path / "thesis.txt").is_file()


def test_the_site_is_small(site):
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 2_000_000


# --- runs by others: hostile, damaged ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def foreign(tmp_path_factory) -> Path:
    return reporting.hostile_site(tmp_path_factory)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cut", "run.json cannot be read as JSON"),
        ("bare", "run.json is not as dialnb writes it: 'profile' is a required property"),
        ("outside", "is not of type 'integer' (at $.parameters.seed)"),
        ("stranger", "is of the paper '../nobody'; known are"),
        ("linked", "log.txt is a link that leads out of the folder of the run"),
        ("numbers", "results.csv cannot be read as a table"),
    ],
)
def test_a_damaged_run_is_one_card_that_says_so(foreign, name, said):
    index = Page(foreign / "index.html").words
    assert re.search(rf"The run \S+/runs/{name} is damaged and was left out: [^<]*{re.escape(said)}", index)


def test_a_cut_notebook_and_empty_figures_are_told_beside_what_is_sound(foreign):
    page = Page(foreign / "ums-gpu.html")
    assert "Seed 1: notebook.ipynb is damaged and has no page here" in page.words
    assert "F1 is damaged and cannot be shown: F1.json cannot be read as JSON" in page.words
    assert "F2 is damaged and cannot be shown: F2.png is empty, cut, or no PNG" in page.words
    assert "ums-gpu/figures/F3.png" in page.loads and "UMS_BERT" in page.words and "0.845" in page.words


def test_a_report_stays_in_its_folder_and_shows_no_file_from_elsewhere(foreign):
    home = foreign.parent
    assert {path.name for path in home.iterdir()} == {"runs", "site"}
    made = {path.name for path in home.rglob("*") if path.is_file() and "escaped" in path.as_posix()}
    assert made == set() and {path.name for path in home.parent.iterdir()}.isdisjoint({"escaped", "escaped.pdf"})
    held = [path for path in foreign.rglob("*") if path.is_file()]
    assert not [path for path in held if reporting.SECRET.encode() in path.read_bytes()]
    assert {path.name for path in foreign.rglob("figures/F[45].*")} <= {"F4.png", "F4.csv"}
    (page,) = (Page(path) for path in foreign.glob("dse-*.html"))
    assert "F5.json is of another figure, ../../../escaped" in page.words
    assert "F4.svg holds more than a drawing" in page.words


def test_a_command_from_a_foreign_run_is_safe_to_paste(foreign):
    (page,) = (Page(path) for path in foreign.glob("dse-*.html"))
    (command,) = (values["data-copy"] for _, values in page.tags if "--set" in values.get("data-copy", ""))
    assert "models=$(ran)" in shlex.split(command) and "'models=$(ran)'" in command


def test_runs_whose_settings_read_alike_have_a_page_each(tmp_path):
    settings = ("a/b", "a-b", "a b", "x" * 300)
    folders = [
        reporting.write_run(tmp_path / str(number), "dse", pd.DataFrame(), set_by_hand={"encoder": name})
        for number, name in enumerate(settings)
    ]
    names = [group.name for group in gather(folders) if group.slug == "dse"]
    assert len(set(names)) == 4 and max(map(len, names)) < 120


def test_without_a_list_for_damaged_runs_one_is_an_error(tmp_path):
    with pytest.raises(DataError, match=r"cut: run\.json cannot be read as JSON"):
        gather([reporting.damaged_runs(tmp_path)["cut"]])


def test_a_run_that_was_killed_is_shown_as_interrupted(tmp_path):
    folder = reporting.write_run(tmp_path / "killed", "dse", reporting.intent_rows({"DSE": 50.0}, seeds=2))
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    (folder / "run.json").write_text(json.dumps(record | {"status": "running"}), encoding="utf-8")
    (group,) = (group for group in gather([folder]) if group.runs)
    assert group.latest["status"] == "interrupted" and "its process has ended" in group.latest["reason"]


# --- gallery ----------------------------------------------------------------------------------------------------------


def test_the_gallery_has_a_recorded_figure_of_every_paper_and_readme_says_the_same_of_each():
    chosen = read_yaml(ROOT / "dialnb" / "report" / "gallery.yaml")
    assert tuple(chosen) == SLUGS
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for slug, pick in chosen.items():
        assert (ROOT / "papers" / slug / "results" / "gpu" / "figures" / f"{pick['figure']}.json").is_file(), slug
        said = re.escape(f"**{load_paper(slug).name}**: {pick['shows']}.")
        assert re.search(rf"!\[[^\]]+\]\(figures/{slug}/{pick['figure']}\.png\) {said}", readme), slug


def test_the_first_page_shows_the_pictures_of_the_gallery_that_the_runs_have(site):
    page = (site / "index.html").read_text(encoding="utf-8").split('<h2 id="gallery">')[1].split("</section>")[0]
    assert re.findall('<a href="([^"]+)"><img src="([^"]+)"', page) == [("ums-gpu.html#F3", "ums-gpu/figures/F3.png")]
    assert "<strong>UMS</strong>: how often the utterance" in page and "gpu profile" in page


def test_the_report_loads_no_torch():
    code = "import sys, dialnb.report; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# --- the first page after `dialnb reproduce` --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(tmp_path_factory) -> dict[str, str]:
    """The pages of a report of runs that were made on this machine: DSE and UMS ran, TaDSE failed."""
    folder = tmp_path_factory.mktemp("here")
    dse, ums, tadse = reporting.write_runs(folder / "runs")
    here = [NotebookRun("dse", "ran", "", 100.0, dse), NotebookRun("ums", "ran", "", 110.0, ums)]
    build([dse, ums, tadse], folder / "site", here=[*here, NotebookRun("tadse", "failed", "why", 30.0, tadse)])
    return {path.name: path.read_text(encoding="utf-8") for path in (folder / "site").glob("*.html")}


def test_after_runs_of_this_machine_the_first_page_opens_with_what_the_records_found(opened):
    first = opened["index.html"]
    opening = first[: first.index("Your run on this machine")]
    kept = [read_json(folder / "claims.json") for folder in recorded_runs() if folder.parents[1].name in SLUGS]
    verdicts = Counter(claim["verdict"] for claims in kept for claim in claims)
    assert f"<strong>{sum(verdicts.values())}</strong> claims" in opening
    assert all(f" {count} " in opening for count in verdicts.values())
    for slug in SLUGS:
        assert f'href="record-{slug}.html"' in opening
        assert read_yaml(PAPERS / slug / "finding.yaml")["says"] in opening
        record = read_json(PAPERS / slug / "results" / "gpu" / "claims.json")
        assert all(f'id="claim-{claim["id"]}"' in opened[f"record-{slug}.html"] for claim in record)


def test_then_it_says_what_ran_here_and_in_how_many_comparisons_the_order_is_that_of_the_record(opened):
    first = opened["index.html"]
    said = " ".join(re.sub("<[^>]+>", "", first[first.index("Your run on this machine") :]).split())
    assert "2 of 3 notebooks ran" in said and "in 4 min." in said
    record = {claim["id"]: claim for claim in read_json(PAPERS / "dse" / "results" / "gpu" / "claims.json")}
    assert record["raw-intents"]["estimate"] > 0, "as in the run"
    same, all_of_them = map(int, re.search(r"In (\d+) of (\d+) comparisons", said).groups())
    assert 1 <= same <= all_of_them


@pytest.mark.parametrize(
    ("profile", "sentence"),
    [("quick", "A quick run decides nothing"), ("gpu", "Whether that is more than chance, its own verdicts below say")],
)
def test_a_quick_run_is_told_to_decide_nothing(tmp_path, profile, sentence):
    run = reporting.write_run(
        tmp_path / "run", "dse", reporting.intent_rows({"BERT": 35.0, "DSE": 50.0}), profile=profile
    )
    page = build([run], tmp_path / "site", here=[NotebookRun("dse", "ran", "", 10.0, run)])
    assert sentence in page.read_text(encoding="utf-8")
    assert "What was found in five" not in build([run], tmp_path / "site").read_text(encoding="utf-8")


def test_the_order_of_a_run_is_compared_where_both_have_an_estimate_of_a_gain():
    def page(**estimates: float | None) -> dict:
        claims = [{"id": name, "kind": "gain", "estimate": value} for name, value in estimates.items()]
        return {"paper": SimpleNamespace(slug="dse"), "claims": claims}

    assert _agreement([page(a=1.0, b=-2.0, c=3.0, d=None)], [page(a=0.1, b=5.0, c=None, d=1.0)]) == {True: 1, False: 1}


@pytest.mark.parametrize("slug", SLUGS)
def test_the_sentence_about_a_paper_agrees_with_its_record(slug):
    found = read_yaml(PAPERS / slug / "finding.yaml")
    verdicts = {claim["id"]: claim["verdict"] for claim in read_json(PAPERS / slug / "results" / "gpu" / "claims.json")}
    assert found["says"].endswith(".") and len(found["says"]) < 160
    assert found["holds"] and {verdicts[name] for name in found["holds"]} == {HOLDS}
    assert HOLDS not in {verdicts[name] for name in found["open"]}
