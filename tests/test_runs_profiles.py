"""Parameters and profiles: what may be set, what is refused before anything starts, and what a plan says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny
import yaml

from dialnb import cli
from dialnb.data.store import Store
from dialnb.errors import BadParameter, DataError, UnknownName
from dialnb.runs import planning
from dialnb.runs.profiles import load_profiles, parse_profiles, run_name
from dialnb.typed import Parameter, show
from tools import short

TOY = Path(__file__).parent / "toy"


@pytest.fixture
def toy():
    return load_profiles("toy", TOY)


@pytest.fixture
def command(monkeypatch, capsys):
    """`dialnb ...` on the toy project: exit code, what was printed, what was complained about."""
    monkeypatch.setenv("DIALNB_PROJECT", str(TOY))

    def call(*arguments: str) -> tuple[int, str, str]:
        code = cli.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_a_profile_changes_defaults_and_values_set_by_hand_change_both(toy):
    settings = toy.resolve("smoke", seed=3, overrides={"rate": 1, "shots": [2]})
    assert (settings.steps, settings.rate, settings.shots, settings.seed) == (4, 1.0, (2,), 3)
    assert toy.resolve("quick").steps == 8
    assert settings.origin["steps"] == "profile smoke" and settings.origin["rate"] == "set by hand"
    assert list(settings.values()) == [settings[name] for name in settings]
    assert settings.get(1024, 8) == 8, "cells.yaml has a name or a number"


def test_an_empty_encoder_means_the_profiles_own(toy):
    assert toy.resolve("quick", encoder="").encoder == "tiny"
    assert toy.resolve("quick", encoder="org/bert").encoder == "org/bert"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 2.0), ("steps", True), ("steps", "2"), ("steps", 0), ("steps", 1001), ("steps", None), ("shots", 1),
        ("shots", ["1"]), ("pooling", "max"), ("normalise", 1), ("limit", "3"), ("rate", float("nan")), ("rate", -0.1),
        ("rate", float("inf")), ("steps", 10**20), ("limit", -1), ("limit", 10**20), ("shots", [1, -1]), ("shots", []),
        ("shots", [1, 10**20]), ("encoder", "./nowhere"), ("encoder", "no such thing"), ("encoder", "a/b/c"),
    ],
)  # fmt: skip
def test_a_wrong_type_or_an_impossible_value_is_refused_with_what_is_allowed(toy, name, value):
    with pytest.raises(BadParameter, match=f"parameter '{name}' must be .*, but (is|has)"):
        toy.resolve("smoke", overrides={name: value})


def test_an_unknown_parameter_is_refused_with_the_nearest_and_all_others(toy):
    with pytest.raises(UnknownName, match=r"did you mean 'steps'\? Known: encoder, fail, .*shots, steps"):
        toy.resolve("smoke", overrides={"step": 2})


def test_an_attribute_that_is_no_parameter_is_an_error_with_the_nearest(toy):
    settings = toy.resolve("smoke")
    with pytest.raises(UnknownName, match="did you mean 'pooling'"):
        _ = settings.poling
    assert not hasattr(settings, "fingerprint")


def test_what_is_typed_is_read_in_the_declared_type(toy):
    typed = toy.parse(["steps=3", "rate=1e-3", "shots=1, 2", "normalise=true", "limit=null", "pooling=cls"])
    assert typed == {"steps": 3, "rate": 1e-3, "shots": (1, 2), "normalise": True, "limit": None, "pooling": "cls"}
    for text in ("steps", "steps=many", "normalise=maybe"):
        with pytest.raises(BadParameter):
            toy.parse([text])


@pytest.mark.parametrize("text", ["1,5", "1, 5", "[1, 5]", "[1,5,]", "'1', '5'", '["1", "5"]'])
def test_lists_are_written_both_ways_on_the_command_line_and_in_a_notebook(toy, text):
    assert toy.parse([f"shots={text}"])["shots"] == (1, 5)
    assert toy.resolve("smoke", overrides={"shots": text}).shots == (1, 5)


def test_a_list_that_is_half_in_brackets_or_has_a_value_twice_is_refused(toy):
    for text, complaint in (("[1, 5", "but has '.1, 5'"), ("1,5,1", "'shots' has a value more than once: 1,5,1")):
        with pytest.raises(BadParameter, match=complaint):
            toy.parse([f"shots={text}"])


def test_an_item_with_a_comma_goes_through_a_command_line_in_quotes():
    names = Parameter("names", tuple[str, ...])
    assert names.parse(show(("a,b", "c"))) == ("a,b", "c")


@pytest.mark.parametrize(
    ("place", "value", "complaint"),
    [
        (("parameters", "steps", "default"), "many", "'steps' must be a whole number"),
        (("parameters", "steps", "typ"), "int", "but has .*typ"),
        (("parameters", "steps", "type"), "number", "unknown type of parameter"),
        (("profiles", "smoke", "steps"), 0, "'steps' must be a whole number"),
        (("profiles", "smoke", "stepz"), 1, "did you mean 'steps'"),
        (("profiles", "tiny"), {}, "unknown profile"),
    ],
)
def test_a_mistake_in_the_file_is_found_when_it_is_read(place, value, complaint):
    raw = yaml.safe_load((TOY / "papers" / "toy" / "profiles.yaml").read_text(encoding="utf-8"))
    inner = raw
    for part in place[:-1]:
        inner = inner[part]
    inner[place[-1]] = value
    with pytest.raises((DataError, UnknownName, KeyError), match=complaint):
        parse_profiles("toy", raw, "profiles.yaml")


def test_run_folders_are_named_by_everything_that_was_set():
    assert run_name("dse", "quick", 1) == "dse-quick-seed1"
    names = {run_name("dse", "quick", 1, overrides=given) for given in ({}, {"steps": 1}, {"steps": 2}, {"rate": 1})}
    assert len(names) == 4
    assert run_name("dse", "quick", 1, overrides={"a": (1, 2)}) == run_name("dse", "quick", 1, overrides={"a": [1, 2]})


def test_a_dry_run_tells_parameters_and_what_is_missing_and_makes_nothing(command, tmp_path):
    code, out, _ = command("run", "toy", "--dry-run", "--set", "steps=5", "--out", str(tmp_path / "runs"))
    assert code == 0
    assert "steps      5      set by hand" in out and "encoder    tiny   profile quick" in out
    assert "present  data     bundled/BANKING77" in out
    assert "MISSING  data     SGD: to be fetched: " in out and "dialnb data fetch SGD" in out
    for official in ("Ubuntu-V1", "Douban:official"):  # there are no copies of the first, and a sample of the second
        assert f"MISSING  data     {official}: to be fetched: official files of unknown size" in out
    assert "MISSING  encoder  org/never-heard-of" in out
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_knows_a_folder_from_a_bundled_encoder(command, tmp_path):
    folder = tiny.encoder().save(tmp_path / "minilm")
    for name, said in ((str(folder), "minilm: folder"), ("mini", "mini: bundled")):
        code, out, _ = command("run", "toy", "--dry-run", "--profile", "smoke", "--encoder", name)
        assert code == 0 and f"present  encoder  {said}" in out
    code, _, err = command("run", "toy", "--dry-run", "--encoder", str(tmp_path / "nowhere"))
    assert code == 2 and "must be a bundled encoder, a folder or a hub id" in err


def test_the_parameters_are_listed_with_type_default_profiles_and_meaning(command):
    code, out, _ = command("run", "toy", "--help-parameters")
    assert code == 0
    assert (
        "steps  (a whole number, at least 1, at most 1000)" in out
        and "default 8; smoke: 4" in out
        and "training steps" in out
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("toyy",), "did you mean 'toy'"),
        (("toy", "--profile", "quik"), "did you mean 'quick'"),
        (("toy", "--set", "stepz=1"), "did you mean 'steps'"),
        (("toy", "--set", "steps=no"), "must be a whole number"),
        (("toy", "--set", "rate=inf"), "'rate' must be a number, at least 0.0, at most 2147483647, but is 'inf'"),
        (("toy", "--set", "shots=1,-2"), "(a list: A,B or '[A, B]'), but has '-2'"),
        (
            ("toy", "--seed", str(10**20)),
            f"'seed' must be a whole number, at least 0, at most 2147483647, but is {10**20}",
        ),
        (("toy", "--encoder", "./nowhere"), "must be a bundled encoder, a folder or a hub id, but is './nowhere'"),
        (("toy", "--dry-run", "--encoder", "./nowhere"), "but is './nowhere'"),
        (("toy", "--encoder", "org/never-heard-of"), "there is no encoder 'org/never-heard-of'"),
    ],
)
def test_a_wrong_command_ends_with_code_2_before_a_kernel_starts(command, monkeypatch, arguments, complaint):
    monkeypatch.setattr("dialnb.runs.engine.run_all", lambda *_: pytest.fail("a notebook was started"))
    code, _, err = command("run", *arguments)
    assert code == 2 and complaint in err


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("--seed=-1", "-1 is not in the range x>=0"),
        ("--seed=1e20", "'1e20' is not a valid integer range"),
        ("--seed=nan", "'nan' is not a valid integer range"),
    ],
)
def test_an_option_that_is_no_count_is_refused_with_the_least_one(command, option, complaint):
    code, _, err = command("run", "toy", option)
    assert code == 2 and f"dialnb: Invalid value for '--seed': {complaint}" in err


def test_the_list_names_title_profiles_and_notebook(command, tmp_path):
    code, out, _ = command("list", "--out", str(tmp_path))
    assert code == 0
    assert "A toy paper that trains a tiny encoder" in out and "profiles: smoke, quick; notebook: yes" in out


@pytest.mark.parametrize("path", sorted((Path(__file__).parent.parent / "papers").glob("*/profiles.yaml")), ids=str)
def test_the_papers_own_profiles_are_sound(path):
    profiles = load_profiles(path.parent.name)
    for name in profiles.profiles:
        assert profiles.resolve(name).seed == 1


PAPERS = {
    path.parent.name: load_profiles(path.parent.name)
    for path in sorted((Path(__file__).parent.parent / "papers").glob("*/profiles.yaml"))
}
SETTINGS = [(slug, p) for slug, profiles in PAPERS.items() for p in profiles.parameters.values()]
NAMES = [(slug, p.name) for slug, p in SETTINGS if p.types == {"string"}]
NUMBERS = [(slug, p.name) for slug, p in SETTINGS if p.types & {"integer", "number"}]


@pytest.mark.parametrize(("slug", "name"), NAMES)
def test_every_setting_that_takes_names_refuses_one_that_is_not_known(slug, name):
    profiles = PAPERS[slug]
    parameter = profiles.parameters[name]
    known = parameter.choices[0]
    with pytest.raises(BadParameter, match=f"'{name}' must be .*one of .*, but (is|has) 'Nope'"):
        profiles.parse([f"{name}={known},Nope" if parameter.is_list else f"{name}=Nope"])


@pytest.mark.parametrize("text", ["inf", "nan", "-1", "1e20"])
def test_no_setting_takes_an_impossible_number(text):
    for slug, name in NUMBERS:
        with pytest.raises(BadParameter, match=f"'{name}' must be "):
            PAPERS[slug].parse([f"{name}={text}"])


def test_a_rate_or_a_number_of_epochs_of_nothing_is_refused_before_training_would():
    rates = [(slug, name) for slug, name in NUMBERS if name.endswith(("learning_rate", "epochs"))]
    trained = [(slug, f"train.{row}") for slug, profiles in PAPERS.items() for row in profiles.train]
    rates += [(slug, f"{row}.{name}") for slug, row in trained for name in ("learning_rate", "epochs")]
    assert len(rates) > 40
    for slug, name in rates:
        with pytest.raises(BadParameter, match=f"'{name}' must be a number, above 0"):
            PAPERS[slug].parse([f"{name}=0"])


def test_a_training_has_settings_of_its_own_by_full_name_and_nested():
    dse = PAPERS["dse"]
    typed = dse.parse(["train.DSE.epochs=3", "train.SimCSE-unsup.max_steps=100", "train.DSE.chunk=none"])
    assert typed == {"train.DSE.epochs": 3.0, "train.SimCSE-unsup.max_steps": 100, "train.DSE.chunk": None}
    nested = {"train": {"DSE": {"epochs": 3, "chunk": None}, "SimCSE-unsup": {"max_steps": 100}}}
    settings = dse.resolve("gpu", overrides=typed)
    assert settings.train == dse.resolve("gpu", overrides=nested).train and settings["train.DSE.epochs"] == 3
    assert settings.train["DSE"] == {"learning_rate": 1e-5, "head_learning_rate": 1e-3, "epochs": 3, "chunk": None}
    assert set(settings.by_hand) == set(typed) and "train.DSE.learning_rate  " in repr(settings)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        ("train.DSSE.epochs=3", "unknown training of dse 'DSSE'; did you mean 'DSE'"),
        ("train.DSE.epoch=3", "unknown training setting 'epoch'; did you mean 'epochs'"),
        ("train.DSE.learning_rate=2", "'train.DSE.learning_rate' must be a number, above 0, at most 1, but is '2'"),
        (
            "train.DSE.precision=float8",
            "but is 'float8'; did you mean float",
        ),
        ("train.DSE.freeze=third", "or one of half"),
        ("train.DSE=3", "unknown training setting 'DSE'"),
        ("training.DSE.epochs=3", "unknown parameter"),
    ],
)
def test_a_wrong_setting_of_a_training_is_refused_with_the_nearest(typed, complaint):
    with pytest.raises((BadParameter, UnknownName), match=complaint):
        PAPERS["dse"].parse([typed])


def test_the_names_that_profiles_declare_are_those_that_the_studies_know():
    from dialnb.studies import dse, wmdc
    from dialnb.training.pretrain import SHAPES
    from dialnb.training.recipes import RECIPES

    declared = {slug: profiles.parameters for slug, profiles in PAPERS.items()}
    assert set(declared["dse"]["models"].choices) | set(declared["wmdc"]["models"].choices) <= RECIPES.keys()
    assert set(declared["dse"]["checkpoints"].choices) == set(dse.CHECKPOINTS)
    assert set(declared["wmdc"]["checkpoints"].choices) == set(wmdc.CHECKPOINTS)
    assert {p.choices for _, p in SETTINGS if "encoder" in p.types} == {(), tuple(SHAPES), ("encoder", *SHAPES)}


def test_every_row_of_a_training_is_of_a_recipe_or_of_some_of_its_models():
    from dialnb.training.recipes import RECIPES

    families = {recipe.family for recipe in RECIPES.values()}
    more = {"UMS on a sample", *(f"{name} on MDC" for name in ("DialogueCSE", "SiameseBERT-s", "SiameseBERT-m"))}
    assert {row for profiles in PAPERS.values() for row in profiles.train} <= families | more


@pytest.mark.parametrize(
    ("name", "present"),
    [
        ("MultiWOZ", True),
        ("Taskmaster:tm4", True),
        ("Taskmaster:tm1-delexicalised", True),
        ("E-commerce:official-sessions", False),
        ("DECODE:main", False),
        ("MASSIVE:slurp", True),
        ("MASSIVE:official", False),
        ("Dialogue-NLI", False),
    ],
)
def test_files_that_nobody_could_check_are_needed_by_the_variant_that_reads_them(name, present, tmp_path, monkeypatch):
    monkeypatch.setenv("DIALNB_CACHE", str(tmp_path))
    monkeypatch.setattr(Store, "has", lambda self, source, file: file.verified)
    profiles = SimpleNamespace(needed=lambda *_: ([name], []))
    (found,) = planning.needs(profiles, "gpu", {})
    assert found.present == present and ("to be fetched" in found.state) != present


@pytest.mark.parametrize("paper", short.SHORT)
def test_the_short_run_of_the_gpu_profile_takes_its_settings_from_the_command_line(paper):
    words = short.command(paper, "mini")
    given = PAPERS[paper].parse([text for option, text in pairwise(words) if option == "--set"])
    settings = PAPERS[paper].resolve("gpu", encoder="mini", overrides=given)
    steps = {name: settings[name] for name in settings.origin if name.endswith("steps")}
    assert {name: value for name, value in steps.items() if value is not None and value > 3} == {}, "two or three each"
