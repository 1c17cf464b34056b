"""The page of fem inspect in headless Chromium: it shows the numbers of its file, and a choice changes what is shown.

--pictures DIR keeps screenshots."""

import re
import time

import numpy as np
from microscope import CHANNEL, GAP, GUTTER, LAYER, MARGIN, PIXELS, PRIOR, PageTest, run

LARGEST, SLOWEST = 30_000_000, 3.0  # bytes of a page and seconds until it is there
FIRST_CHANNEL = 2 + PRIOR + GAP  # pixels above it
BRIGHTNESS = """(({data, width}, rows, tokens, left, right) => {
  const x = (token) => Math.floor(left + (token + 0.25) * (width - left - right) / tokens);  // beside rings and dots
  return rows.map((y) => Array.from({length: tokens}, (_, token) => 4 * (y * width + x(token)))
    .map((place) => data[place] + data[place + 1] + data[place + 2]));
})"""


def setUpModule():
    PageTest.start_browser()


class Numbers(PageTest):
    def test_it_opens_where_it_is_most_interesting(self):
        made = self.open("text", "light")
        opens = made.about["opens_at"]
        self.assertEqual(self.text("title"), made.about["title"])
        self.assertEqual(self.evaluate("document.title"), f"{made.about['title']} – selection microscope")
        self.assertEqual(self.text("command"), made.about["command"])
        self.assertEqual(self.texts("#notes li"), made.about["notes"])
        self.assert_reading(made, opens["row"], opens["layer"], opens["head"])
        self.assertEqual(self.evaluate("location.hash"), "", "the plain address opens there again")

    def test_every_number_of_a_reading_is_the_files(self):
        made = self.open("text")
        for row, token in list(enumerate(made.rows))[::2]:
            layer, head = row // 2 % 4, row // 8 % 2
            self.go(f"#token={token}&layer={layer}&head={head}")
            self.assert_reading(made, row, layer, head)
            prior, choice = made.of["prior"][layer, row, head], made.of["choice"][layer, row, head]
            weights = self.table("weights")
            self.assertEqual(len(weights), min(10, token + 1))
            for largest, (number, _, weight, chosen) in zip(np.sort(prior)[::-1], weights, strict=False):
                self.assertEqual(prior[int(number)], largest)
                self.assert_shows(weight, float(largest))
                self.assertEqual(int(chosen), (choice == int(number)).sum())

    def test_layers_are_the_files(self):
        made = self.open("text")
        layers, (baseline, *rows) = made.about["layers"], self.table("layers")
        self.assertEqual(baseline[:6], ["plain attention", "1.0000", "0.0 %", "0.0 %", "0.0000", "0.0000"])
        for layer, (_, rank, disagree, moved, kl, beta, gate, capped) in zip(layers, rows, strict=True):
            shown = {"rank": rank, "disagree": disagree, "moved": moved, "kl": kl, "lambda": gate, "capped": capped}
            for name, text in shown.items():
                self.assert_shows(text, layer[name])
            for text, name in zip(re.findall(r"[\d.]+", beta), ("median", "low", "high"), strict=True):
                self.assert_shows(text, layer["hidden_beta"][name])
        self.assert_drawn("#layers td:nth-child(5) rect", "width", [layer["kl"] for layer in layers])
        self.assert_drawn("#layers td:nth-child(2) rect", "width", [layer["rank"] - 1 for layer in layers])
        for layer in (0, 3):
            self.go(f"#layer={layer}")
            counts = layers[layer]["hidden_beta"]["counts"]
            self.assertEqual([int(text) for text in self.texts("#bins td:last-child")], counts)
            self.assert_drawn(".chart rect", "height", counts)

    def assert_drawn(self, bars: str, extent: str, values: list[float]) -> None:
        drawn = np.array(self.each(bars, f"+one.getAttribute('{extent}')"))
        np.testing.assert_allclose(drawn / drawn.max(), np.array(values) / max(values), rtol=1e-6, atol=1e-9)

    def test_the_places_of_most_disagreement_are_the_files(self):
        made = self.open("text")
        addresses = self.each("#places a", "one.getAttribute('href')")
        most = np.sort(made.of["map_disagree"][:, made.rows].ravel())[::-1]
        self.assertEqual(len(addresses), 8)
        for address, (_, disagree, kl), largest in zip(addresses, self.table("places"), most, strict=False):
            token, layer = map(int, re.fullmatch(r"#token=(\d+)&layer=(\d+)", address).groups())
            self.assertEqual(made.of["map_disagree"][layer, token], largest)
            self.assert_shows(disagree, float(largest))
            self.assert_shows(kl, float(made.of["map_kl"][layer, token]))

    def test_pictures_are_darker_where_weights_are_larger(self):
        made = self.open("text")
        self.go(f"#token={made.rows[-1]}&layer=1&head=0")
        prior, choice = made.of["prior"][1, -1, 0], made.of["choice"][1, -1, 0]
        rows = [15] + [FIRST_CHANNEL + CHANNEL * channel + CHANNEL // 2 for channel in range(16)]
        shown = np.array(self.evaluate(f"{BRIGHTNESS}({PIXELS}(reading), {rows}, {len(prior)}, {GUTTER}, {MARGIN})"))
        order = np.argsort(prior, kind="stable")
        self.assertTrue((np.diff(shown[0][order]) <= 0).all(), "more weight, less light")
        self.assertGreater(shown[0][order[0]], shown[0][order[-1]] + 100)
        self.assertEqual(shown[1:].argmin(-1).tolist(), choice.tolist())

    def test_plain_attention_is_the_baseline(self):
        made = self.open("attention")
        self.assert_reading(made, made.about["opens_at"]["row"], made.about["opens_at"]["layer"], 0)
        self.assertEqual(self.texts("#facts dd:not(.soft)")[:3], ["1.0000", "0 of 4", "1"])
        self.assertIn("No channel chooses another one.", self.text("summary"))

    def test_energies_are_shown_where_there_are_any(self):
        made = self.open("series")
        self.go("#token=4&layer=2&head=1")
        self.assert_reading(made, 4, 2, 1)
        for shown, name in zip(self.texts("#facts dd:not(.soft)")[4:], ("energy", "energy_gradient"), strict=True):
            self.assert_shows(shown, float(made.of[name][2, 4, 1]))
        for layer, row in zip(made.about["layers"], self.table("layers")[1:], strict=True):
            for shown, name in zip(row[-2:], ("energy", "energy_gradient"), strict=True):
                self.assert_shows(shown, layer[name])

    def test_made_up_numbers_are_reads(self):
        """Else the tests above would be of numbers that cannot be."""
        of = self.page("series").of
        beta = of["beta"][:, None]
        np.testing.assert_allclose(of["free_energy"], of["mean"] + of["kl_pq"] / beta, rtol=1e-4, atol=1e-5)
        gated = of["mean"] + of["lambda"] * (of["free_energy"] - of["mean"])
        np.testing.assert_allclose(of["gated"], gated, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(of["prior"].sum(-1), 1, rtol=1e-5)


class Choosing(PageTest):
    def test_a_click_a_key_an_address_and_a_picker_change_the_panels(self):
        made = self.open("text")
        layer, head = made.about["opens_at"]["layer"], made.about["opens_at"]["head"]
        self.choose(20)
        self.assert_reading(made, 20, layer, head)
        for key, row in (("ArrowRight", 21), ("ArrowRight", 22), ("ArrowLeft", 21), ("Home", 0), ("End", 34)):
            self.browser.press(key)
            self.assert_reading(made, row, layer, head)
            self.assertEqual(self.evaluate("+document.activeElement.dataset.row"), row)
            self.assertEqual(self.each("[role=radio][tabindex='0']", "+one.dataset.row"), [row])
        self.evaluate("document.getElementById('layer').focus()")
        self.browser.press("ArrowDown")
        self.assert_reading(made, 34, layer + 1, head)
        row = made.rows.index(5)
        self.go("#token=5&layer=3&head=0&all=1&sort=kl")
        self.assert_reading(made, row, 3, 0)
        self.browser.point("#layers tbody tr:nth-child(3) button", click=True)
        self.assert_reading(made, row, 1, 0)
        self.assertEqual(self.evaluate("location.hash"), "#token=5&layer=1&head=0&sort=kl&all=1")
        self.browser.point("#places a", click=True)
        self.assertEqual(self.each("#places a", "one.getAttribute('href')")[0], self.evaluate("location.hash"))

    def test_all_figures_are_shown_if_asked_for(self):
        self.open("text")
        shown = (
            "[...document.querySelectorAll('#channels th[aria-sort]')].filter((one) => one.checkVisibility()).length"
        )
        self.assertEqual(self.evaluate(shown), 8)
        self.browser.point("#all", click=True)
        self.assertEqual(self.evaluate(shown), 15)
        self.assertIn("all=1", self.evaluate("location.hash"))

    def test_tokens_take_the_colour_of_what_is_asked_for(self):
        made = self.open("text")
        row = len(made.rows) - 1
        of, place = made.of, (2, row, 0)
        chosen = np.bincount(of["choice"][place], minlength=len(made.about["tokens"]))
        values = {"disagree": of["map_disagree"][2], "kl": of["map_kl"][2], "rank": of["map_rank"][2],
                  "prior": of["prior"][place], "chosen": chosen}  # fmt: skip
        for colour, numbers in values.items():
            self.go(f"#token={made.rows[row]}&layer=2&head=0&colour={colour}")
            shown = self.each(
                ".token", "getComputedStyle(one).backgroundColor.match(/\\d+/g).reduce((a, b) => a + +b, 0)"
            )
            light = np.array(shown)[np.argsort(numbers, kind="stable")]
            self.assertTrue((np.diff(light) <= 0).all(), colour)
            self.assertGreater(light[0], light[-1] + 100, colour)

    def test_a_token_that_is_not_shown_whole_is_seen_but_not_chosen(self):
        made = self.open("text")
        whole = self.each(".token", "one.role === 'radio'")
        self.assertEqual(whole, [token in made.rows for token in range(len(made.about["tokens"]))])
        before = self.chosen()
        self.browser.point(".token:not(.whole)", click=True)
        self.assertEqual(self.chosen(), before)
        self.assertIn("not shown whole", self.text("tip"))

    def test_the_back_button_goes_back(self):
        made = self.open("text")
        self.choose(3)
        self.choose(9)
        seen = []
        for step in ("back", "back", "forward"):
            self.after("popstate", f"history.{step}()")
            seen.append(self.chosen())
        self.assertEqual(seen, [3, made.about["opens_at"]["row"], 3])

    def test_an_address_without_meaning_is_ignored(self):
        made = self.open("text")
        opens = made.about["opens_at"]
        usual = [opens["row"], str(opens["layer"]), str(opens["head"]), "disagree", "0", list(range(16))]
        for address in ("token=2", "token=99999", "token=-1", "token=1e1", "layer=4", "head=x", "sort=constructor",
                        "sort=--kl", "colour=__proto__", "near=7", "near=-32", "&&=&=1", "%E0%A4%A", "<script>",
                        "token=12.5&layer=&head=NaN&all=yes"):  # fmt: skip
            self.go("#" + address)
            seen = [self.chosen(), *map(self.value, ("layer", "head", "colour", "near")), self.channels()]
            self.assertEqual(seen, usual, address)

    def test_the_table_sorts_and_the_picture_with_it(self):
        made = self.open("text")
        self.go("#token=40&layer=2&head=0")
        place = (2, made.rows.index(40), 0)
        spent = made.of["kl_qp"][place]
        for direction, order in (("descending", np.argsort(-spent)), ("ascending", np.argsort(spent))):
            self.browser.point("[data-sort=kl]", click=True)
            self.assertEqual(self.channels(), order.tolist())
            self.assertEqual(self.each("[data-sort=kl]", "one.parentElement.ariaSort"), [direction])
            self.point("reading", 7, 41, FIRST_CHANNEL + CHANNEL / 2)
            self.assertIn(f"channel {order[0]}:", self.text("tip"))
        self.assertIn("sort=-kl", self.evaluate("location.hash"))
        for sort in ("beta", "-beta"):  # no number is neither large nor small
            self.go(f"#token=40&layer=2&head=0&sort={sort}")
            self.assertEqual(self.channels()[-1], np.flatnonzero(np.isnan(made.of["hidden_beta"][place]))[0])

    def test_a_cell_tells_its_token_prior_and_posterior(self):
        made = self.open("text")
        token, place = made.rows[-1], (0, len(made.rows) - 1, 1)
        self.go(f"#token={token}&layer=0&head=1")
        for channel in (0, 7, 15):
            kept, weights = made.of["top_token"][place][channel], made.of["top_weight"][place][channel]
            least = int(np.setdiff1d(np.arange(token + 1), kept)[0])
            for at, weight in ((int(kept[0]), weights[0]), (int(kept[3]), weights[3]), (least, weights[-1])):
                self.point("reading", at, token + 1, FIRST_CHANNEL + CHANNEL * channel + CHANNEL / 2)
                name, prior, posterior = self.text("tip").split("\n")
                self.assertTrue(name.startswith(f"token {at} “"), name)
                self.assert_shows(prior.removeprefix("prior "), float(made.of["prior"][place][at]))
                self.assertTrue(posterior.startswith(f"channel {channel}: posterior "), posterior)
                self.assertEqual("at most" in posterior, at == least)
                self.assert_shows(posterior.split()[-1], float(weight))

    def test_the_map_chooses_layer_and_token(self):
        made = self.open("text")
        token = made.rows[12]
        self.point("map", token, len(made.about["tokens"]), 2 + LAYER * 3.5, click=True)
        self.assertEqual([self.chosen(), self.value("layer")], [12, "3"])
        self.evaluate("document.getElementById('map').focus()")
        for key in ("ArrowUp", "Enter"):
            self.browser.press(key)
        self.assertEqual([self.chosen(), self.value("layer")], [12, "2"])
        self.assert_shows(re.search(r"[\d.]+ %", self.text("said"))[0], float(made.of["map_disagree"][2, token]))


class Large(PageTest):
    def test_2000_tokens_12_layers_and_64_channels_are_there_in_3_seconds(self):
        made = self.page("large")
        size = made.page.stat().st_size
        self.assertEqual(made.of["prior"].shape, (12, 64, 4, 2000))
        self.assertEqual(made.of["choice"].shape, (12, 64, 4, 16))
        begun = time.monotonic()
        self.open("large")
        self.evaluate(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )  # on the screen
        there = time.monotonic() - begun
        begun = time.monotonic()
        self.go(f"#token={made.rows[63]}&layer=7&head=2")
        changed = time.monotonic() - begun
        print(f"2,000 x 12 x 64: {size / 1e6:.1f} MB, there in {there:.2f} s, another view in {changed:.2f} s")
        self.keep("large")
        self.assertLess(size, LARGEST)
        self.assertLess(there, SLOWEST)
        self.assert_reading(made, 63, 7, 2)
        self.assertIn("more than there are pixels", self.text("reading-note"))
        self.assertIn("2,000 tokens are more than there are pixels", self.text("map-note"))
        best = int(made.of["prior"][7, 63, 2].argmax())
        self.point("reading", best, made.rows[63] + 1, 15)  # though it shares its pixel
        self.assertTrue(self.text("tip").startswith(f"token {best:,} "), self.text("tip"))

    def test_a_long_context_is_narrowed_to_what_is_near(self):
        made = self.open("large")
        row = 40
        end = made.rows[row] + 1
        self.go(f"#token={end - 1}&layer=3&head=1&near=32")
        prior, choice = made.of["prior"][3, row, 1], made.of["choice"][3, row, 1]
        for token in (end - 32, end - 1, end - 20):
            self.point("reading", token - (end - 32), 32, 15)
            name, weight, chosen = self.text("tip").split("\n")
            self.assertTrue(name.startswith(f"token {token:,} "), name)
            self.assert_shows(weight.removeprefix("prior "), float(prior[token]))
            count = (choice == token).sum()
            self.assertEqual(chosen, f"chosen by {count} channel{'' if count == 1 else 's'}")
        far = (choice < end - 32).sum()
        self.assertGreater(far, 0)
        self.assertIn(f"{far} channel{'' if far == 1 else 's'} chose a token further away.", self.text("reading-note"))
        self.assertNotIn("pixels", self.text("reading-note"))

    def test_the_chosen_token_of_a_long_context_is_in_sight(self):
        made = self.open("large")
        for token in (made.rows[-1], made.rows[0], made.rows[30]):
            self.go(f"#token={token}")
            edges = self.each(
                "#tokens, [aria-checked=true]", "(({top, bottom}) => [top, bottom])(one.getBoundingClientRect())"
            )
            self.assertTrue(edges[0][0] <= edges[1][0] < edges[1][1] <= edges[0][1], edges)


if __name__ == "__main__":
    run()
