"""The table of recipes: each says by name which options its functions take, and whose settings it has."""

from __future__ import annotations

from inspect import signature

import pytest

from dialnb.training.recipes import RECIPES
from dialnb.training.settings import PRINTED


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_names_the_options_that_its_functions_take(name):
    recipe = RECIPES[name]
    examples, start, objective = (
        set(signature(function).parameters) for function in (recipe.examples, recipe.prepare, recipe.objective)
    )
    assert set(recipe.of_examples) == {*list(signature(recipe.examples).parameters)[2:]} - {"cache"}
    assert set(recipe.of_start) == {*list(signature(recipe.prepare).parameters)[1:]}
    assert set(recipe.of_both) == (objective - {"encoder", "selector"}) & (examples | start)
    assert recipe.settings == PRINTED[recipe.family]
