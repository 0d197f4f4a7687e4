"""The pictures that move and the table of claims, used in a real browser: each control changes what it should."""

import json
import math
import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

ROOT = Path(__file__).parents[2]
KINDS = ("trajectories", "trap", "ranks", "atlas", "margins", "paths", "heads")


def view(name):
    return json.loads((ROOT / "figures" / "views" / f"{name}.json").read_text())


def status(picture):
    return picture.locator("[role=status]").inner_text()


def drawn(picture):
    return picture.locator(".panels").inner_html()


def slide(slider, to):
    """Move a slider as its own events do."""
    slider.evaluate("(one, to) => { one.value = to; one.dispatchEvent(new Event('input', {bubbles: true})); }", to)


def numbers(text):
    return [float(one.replace(",", "")) for one in re.findall(r"-?\d[\d,]*\.?\d*(?:e[+-]?\d+)?", text)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_slider_moves_by_the_keyboard_and_changes_number_sentence_and_drawing(opened, kind):
    one = opened(f"pictures/{kind}")
    pictures = one.page.locator(".picture").all()
    assert len(pictures) == (2 if kind == "trajectories" else 1)
    for picture in pictures:
        sliders = picture.locator("input[type=range]").all()
        assert len(sliders) == {"trap": 2, "atlas": 0}.get(kind, 1)
        for slider in sliders:
            output = slider.locator("xpath=following-sibling::output")
            before = output.inner_text(), status(picture), drawn(picture)
            slider.focus()
            slider.press("ArrowRight")
            after = output.inner_text(), status(picture), drawn(picture)
            assert all(a != b for a, b in zip(before, after, strict=True)), before[:2]
            assert slider.get_attribute("aria-valuetext") == after[0]
            slider.press("ArrowLeft")
            assert (output.inner_text(), status(picture), drawn(picture)) == before
    assert one.said == []


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "atlas"])
def test_every_choice_changes_the_drawing(opened, kind):
    one = opened(f"pictures/{kind}")
    for picture in one.page.locator(".picture").all():
        for select in picture.locator("select").all():
            seen = set()
            for value in select.locator("option").all():
                select.select_option(value.get_attribute("value"))
                seen.add(drawn(picture))
            assert len(seen) == select.locator("option").count() >= 1
    assert one.said == []


def test_trajectories_show_attention_and_distances_of_the_step(opened):
    data = view("trajectories-5")
    picture = opened("pictures/trajectories").page.locator("#picture-trajectories-5")
    run, seed = picture.locator("select").all()
    names = list(data["steps"])
    for k, name in enumerate(names):
        run.select_option(str(k))
        seed.select_option("1")
        last = len(data["steps"][name]) - 1
        assert picture.locator("input").get_attribute("max") == str(last)
        for step in (0, last // 2, last):
            slide(picture.locator("input"), step)
            one = data["seeds"][1]["runs"][name]
            said = numbers(status(picture).replace("1 - cos", ""))
            assert said[0] == data["steps"][name][step]
            expected = []
            for X, Wz, chosen in zip(data["seeds"][1]["X"], one["path"][step], one["selected"], strict=True):
                logits = [x[0] * Wz[0] + x[1] * Wz[1] for x in X]
                weights = [math.exp(logit - max(logits)) for logit in logits]
                expected.append(weights[chosen] / sum(weights))
            expected += [one["off"][norm][step] for norm in ("frobenius", "nuclear")]
            assert said[1:] == pytest.approx(expected, rel=0.06, abs=1e-12)
            heights = [float(bar.get_attribute("height")) for bar in picture.locator("rect").all()]
            assert len(heights) == 10
            assert sum(heights[:5]) == pytest.approx(sum(heights[5:]), rel=1e-6)


def test_play_moves_the_step_to_the_end_and_stops(opened):
    page = opened("pictures/margins").page
    slider, button = page.locator(".picture input"), page.get_by_role("button", name="Play")
    button.click()
    assert page.locator(".picture button").inner_text() == "Pause"
    page.wait_for_function("document.querySelector('.picture button').textContent === 'Play'")
    assert slider.input_value() == slider.get_attribute("max")
    page.locator(".picture button").click()
    page.locator(".picture button").click()
    assert slider.input_value() == "0"
    assert page.locator(".picture button").inner_text() == "Play"


def test_who_asks_for_less_motion_gets_no_button_that_plays(opened):
    page = opened("pictures/margins", reduced_motion="reduce").page
    assert page.locator(".picture input").count() == 1
    assert page.locator(".picture button").count() == 0


def test_descent_is_trapped_with_unequal_scores_and_leaves_with_equal_ones(opened):
    page = opened("pictures/trap").page
    picture = page.locator(".picture")
    assert "is trapped at the local minimum" in status(picture)
    picture.locator("select").select_option("1")
    assert "leaves the panel" in status(picture)
    picture.locator("select").select_option("0")
    drawing = picture.locator("svg").first
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    # The middle of the right half of the axes: beyond the saddle.
    page.mouse.click(box["x"] + box["width"] * 300 / 360, box["y"] + box["height"] * 120 / 260)
    x, y = numbers(status(picture))[:2]
    assert (x, y) == pytest.approx((1.3, 0.1), abs=0.2)
    assert "leaves the panel" in status(picture)
    assert numbers(status(picture))[2] == pytest.approx(3, abs=0.1)


def test_ranks_are_counts_of_singular_values_above_the_tolerance(opened):
    data = view("svm-rank")
    picture = opened("pictures/ranks").page.locator(".picture")
    for k, one in enumerate(data["settings"]):
        picture.locator("select").select_option(str(k))
        for place in (0, 25, 55):
            slide(picture.locator("input"), place)
            least = -12 + place / 5
            expected = [
                sum(value > least for problem in one[kind] for value in problem) / len(one[kind])
                for kind in ("certified", "inexact")
            ]
            assert numbers(status(picture).partition("largest:")[2]) == pytest.approx(expected, abs=0.006)


def test_the_atlas_shows_the_cell_that_is_pointed_at_or_reached_by_the_keyboard(opened):
    data = view("atlas")
    one = opened("pictures/atlas")
    picture = one.page.locator(".picture")
    cells = picture.locator("td[data-norm]")
    assert cells.count() == len(data["rows"]) * len(data["norms"])
    first = status(picture)
    cells.nth(1).hover()
    assert status(picture).startswith(data["norms"][1])
    assert status(picture) != first
    cells.nth(1).focus()
    for key, row, norm in (("ArrowRight", 0, 2), ("ArrowDown", 1, 2), ("ArrowLeft", 1, 1), ("ArrowUp", 0, 1)):
        one.page.keyboard.press(key)
        ratio = data["rows"][row]["ratio"][norm][-1]
        assert status(picture).startswith(data["norms"][norm])
        assert numbers(status(picture).partition("ratio")[2])[0] == pytest.approx(ratio, abs=6e-4)
        assert picture.locator("td[tabindex='0']").count() == 1


def test_margins_of_the_step_are_counted(opened):
    data = view("lm-margins")
    picture = opened("pictures/margins").page.locator(".picture")
    for k, text in enumerate(data["texts"]):
        picture.locator("select").select_option(str(k))
        for step in range(len(data["steps"])):
            slide(picture.locator("input"), step)
            now = [margin[step] for kind in text["margins"] for margin in kind]
            said = numbers(status(picture))
            assert said[:3] == [data["steps"][step], sum(one > 0 for one in now), len(now)]
            assert said[3] == pytest.approx(min(now), rel=0.06)


def test_paths_show_the_mean_distances_at_the_radius(opened):
    data = view("regularization-path")
    picture = opened("pictures/paths").page.locator(".picture")
    for k, path in enumerate(data["paths"]):
        picture.locator("select").select_option(str(k))
        for place in (0, len(data["radii"]) - 1):
            slide(picture.locator("input"), place)
            expected = [
                math.exp(sum(math.log(seed[place]) for seed in path["distance"][norm]) / len(path["distance"][norm]))
                for norm in ("frobenius", "nuclear")
            ]
            assert numbers(status(picture))[1:3] == pytest.approx(expected, rel=0.06)


def test_heads_show_the_ratios_attention_and_support_vectors_of_the_step(opened):
    data = view("hierarchy")
    picture = opened("pictures/heads").page.locator(".picture")
    head, sequence = picture.locator("select").all()
    for k, one in enumerate(data["heads"]):
        head.select_option(str(k))
        sequence.select_option("1")
        for step in (0, len(one["steps"]) - 1):
            slide(picture.locator("input"), step)
            said = numbers(status(picture).replace("90 %", ""))
            assert said[0] == one["steps"][step]
            assert said[1:4] == pytest.approx([one[name][step] for name in ("ratio", "low", "high")], rel=0.06)
            assert said[4:] == [one["carrying"][step], one["rows"]]
            attention = [share for query in one["attention"][step][1] for share in query]
            shown = [float(cell.get_attribute("fill-opacity")) for cell in picture.locator("rect.shade").all()]
            assert shown == pytest.approx(attention, abs=1e-6)
            assert picture.locator("circle.saddle").count() == sum(map(len, one["support"][step][1]))
            assert picture.locator("rect.selected").count() == sum(map(len, one["selected"][1]))
            letters = one["sequences"][1]
            label = picture.locator("svg[role=img]").last.get_attribute("aria-label")
            assert label.startswith(f"Attention of each query: {letters[0]} reads {letters[0]} (1)")


def test_claims_are_filtered_by_paper_verdict_topic_and_words(opened):
    claims = json.loads((ROOT / "figures" / "claims.json").read_text())
    page = opened("reproduction/index").page
    shown = page.locator("#claims tbody tr:not([hidden])")
    assert shown.count() == len(claims)
    undecided = sum(one["verdict"] == "not decided" for one in claims)
    page.get_by_label("verdict").select_option("not decided")
    assert shown.count() == undecided > 0
    assert page.get_by_role("status").inner_text() == f"{undecided} of {len(claims)} claims shown"
    page.get_by_label("verdict").select_option("")
    page.get_by_label("paper").select_option("arXiv 2410.14581")
    assert shown.count() == sum(one["source"].partition(", ")[0] == "arXiv 2410.14581" for one in claims) > 0
    page.get_by_label("paper").select_option("")
    page.get_by_label("topic").select_option("landscape")
    assert 0 < shown.count() < len(claims)
    page.get_by_label("topic").select_option("")
    page.get_by_label("words").fill("trajectories-5:W")
    assert shown.count() == 1
    shown.locator("a").click()
    assert page.url.endswith("/reproduction/trajectories-5.html#claim-trajectories-5-w")


@pytest.mark.parametrize("kind", KINDS)
def test_without_scripts_a_page_has_its_figure_and_its_numbers(opened, kind):
    page = opened(f"pictures/{kind}", java_script_enabled=False).page
    assert page.locator("article img").first.is_visible()
    if kind != "atlas":
        page.locator("details summary").first.click()
    assert page.locator(".scrolls table").first.is_visible()
    assert page.locator(".scrolls tbody tr").count() > 1
    assert not page.locator(".key").first.is_visible()


def test_without_scripts_all_claims_are_shown(opened):
    claims = json.loads((ROOT / "figures" / "claims.json").read_text())
    page = opened("reproduction/index", java_script_enabled=False).page
    assert page.locator("#claims tbody tr").count() == len(claims)
    assert page.locator("#claims tbody tr").last.is_visible()
