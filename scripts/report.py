#!/usr/bin/env python3
"""Lays out the numbers of `fem report` as one page that needs no network. Usage: report.py NUMBERS.json --out PAGE.html

Everything that is computed or worded is in the numbers; this only shows it."""

import argparse
import json
import sys
from html import escape
from pathlib import Path

import html_page
import report_figures as figures
from html_page import tag

# The page's own script: draws every chart, and lets a legend choose which curves are shown.
DRAW = """
const views = new Map();
async function draw(chart) {
  const spec = JSON.parse(chart.nextElementSibling.textContent);
  const {view} = await vegaEmbed(chart, spec, {actions: false, renderer: "svg"});
  views.set(chart, view);
  await show(chart);
}
async function show(chart) {
  const boxes = chart.closest(".curves")?.querySelectorAll("input:checked");
  if (boxes) await views.get(chart)?.signal("shown", [...boxes].map((box) => box.value)).runAsync();
}
const charts = [...document.querySelectorAll(".chart")];
for (const part of document.querySelectorAll("details"))  // what is closed has no width to draw in
  part.addEventListener("toggle", () => part.querySelectorAll(".chart:empty").forEach(draw), {once: true});
for (const legend of document.querySelectorAll("fieldset"))
  legend.addEventListener("change", () => legend.closest(".curves").querySelectorAll(".chart").forEach(show));
Promise.all(charts.filter((chart) => !chart.closest("details")).map(draw))
  .then(() => document.documentElement.setAttribute("data-drawn", views.size));
"""
SCRIPTS = "'unsafe-inline' 'unsafe-eval'"  # the latter is Vega's
MOST_SHOWN = 8  # curves that a chart shows at first


def library() -> str:
    """Vega, which draws the charts, as one script."""
    try:
        import vl_convert
    except ImportError:
        raise SystemExit(
            f"expected the package vl-convert-python; install it: {sys.executable} -m pip install vl-convert-python"
        ) from None
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")


def data(value) -> str:
    """JSON that no script element ends in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def again(command: str) -> str:
    lines = "\n".join(command.splitlines())
    return tag("p", "Made again by ", tag("code", escape(lines)), class_="again") if command else ""


def chart(spec: dict, title: str = "") -> str:
    described = spec["description"]
    drawing = tag("div", class_="chart drawn", role="img", aria_label=described)
    source = tag("script", data(spec), type="application/json")
    return tag("figure", tag("h4", escape(title)) if title else "", drawing, source)


def charts(all_charts: list[str]) -> str:
    return tag("div", *all_charts, class_="charts")


def table(caption: str, header: list[str], rows: list[tuple[str, list[str]]]) -> str:
    """rows: the first column, which is a header, and the cells after it."""
    head = tag("thead", tag("tr", *(tag("th", text, scope="col") for text in header)))
    body = tag("tbody", *(tag("tr", tag("th", first, scope="row"), *cells) for first, cells in rows))
    region = tag("div", tag("table", head, body), class_="wide", tabindex="0", role="region", aria_label=caption)
    return tag("figure", tag("figcaption", escape(caption)), region)


def name_of(row: dict) -> str:
    is_other = row["title"] and row["title"] != row["label"]
    return escape(row["label"]) + (tag("span", escape(row["title"]), class_="paper") if is_other else "")


def board_cell(cell: dict) -> str:
    ours = escape(cell["text"]) or "–"
    published = tag("span", "paper ", escape(cell["published"]), class_="paper") if cell["published"] else ""
    failed = tag("span", f"{cell['failed']} failed", class_="paper") if cell["failed"] else ""
    return tag("td", tag("span", ours, class_="ours"), published, failed)


def board_section(study: dict) -> str:
    board = study["board"]
    measure = board["measure"].replace("_", " ") + (f" ({board['unit']})" if board["unit"] else "")
    seeds = sorted({len(cell["seeds"]) for row in board["rows"] for cell in row["cells"] if cell["seeds"]})
    over = " to ".join(map(str, sorted({seeds[0], seeds[-1]}))) if seeds else "no"
    how = f"median over {over} rounds" if board["timed"] else f"mean ± standard error over {over} seeds"
    better = "more" if board["larger_is_better"] else "less"
    caption = f"{measure[0].upper() + measure[1:]}, {how}; {better} is better."
    if any(cell["published"] for row in board["rows"] for cell in row["cells"]):
        below = "what the paper says" if board["places"] else "the paper's figure"
        caption += f" Below ours, {below}: {study['source']}."
    header = [escape(board["row_axis"])] + [escape(column["title"] or measure) for column in board["columns"]]
    rows = [(name_of(row), [board_cell(cell) for cell in row["cells"]]) for row in board["rows"]]
    every = [
        chart(figures.every_run(board, place), column["title"] if len(board["columns"]) > 1 else "")
        for place, column in enumerate(board["columns"])
    ]
    middle = "Every round a dot, their median" if board["timed"] else "Every run a dot, their mean"
    note = f"{middle} a bar; a hollow diamond is the paper's figure, if it has one."
    return (
        tag("h3", "Table")
        + table(caption, header, rows).replace("<table>", '<table class="board">', 1)
        + again(study["again"])
        + tag("h3", "Every run")
        + tag("p", note, class_="soft")
        + charts(every)
        + again(study["again"])
    )


def signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.4g}".replace("-", "−")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def main_agreement(study: dict) -> dict | None:
    """That of the average, or of the only column."""
    return next((one for one in study["agreements"] if one["is_average"]), next(iter(study["agreements"]), None))


def reversals(agreements: list[dict], board: dict, certain: bool) -> str:
    """Every pair that stands the other way round, certainly or not."""
    rows = [
        (
            escape(one["column"] or board["measure"]),
            [tag("td", escape(f"{pair['better']} over {pair['worse']}"), class_="words")]
            + [tag("td", signed(pair["published"])), tag("td", escape(pair["text"])), tag("td", str(pair["seeds"]))],
        )
        for one in agreements
        for pair in one["reversed"]
        if pair["certain"] == certain
    ]
    if not rows:
        return ""
    caption = "Better minus worse in the paper's order, here with half of the 95 % interval."
    header = ["column", "the paper has", "paper", "here", "seeds"]
    where = "Where it certainly does not" if certain else "Where it does not, but by chance perhaps"
    listed = tag("summary", f"{where}: {len(rows)} {'pair' if len(rows) == 1 else 'pairs'}")
    return tag("details", listed, table(caption, header, rows))


def order_section(study: dict) -> str:
    board, agreements = study["board"], study["agreements"]
    if not agreements:
        return ""
    parts = [tag("h3", "Does the paper's order hold?")]
    main = main_agreement(study)
    place = len(board["columns"]) - 1 if main["is_average"] else 0
    text = f"Spearman's ρ {number(main['spearman'])}, Kendall's τ {number(main['kendall'])} over {main['rows']} rows"
    of = " of the average" if main["is_average"] else f" ({main['column']})" if main["column"] else ""
    parts.append(tag("p", tag("strong", escape(text + of + ".")), " ", escape(main["sentence"]), class_="order"))
    if main["rows"] > 3 and not board["places"]:
        parts.append(charts([chart(figures.against_paper(board, place))]))
    if len(agreements) > 1:
        rows = [
            (
                escape(one["column"] or board["measure"]),
                [tag("td", number(one["spearman"])), tag("td", number(one["kendall"]))]
                + [tag("td", str(one[name])) for name in ("rows", "pairs", "same")]
                + [tag("td", str(len(one["reversed"]))), tag("td", str(one["certain"]))],
            )
            for one in agreements
        ]
        header = ["column", "Spearman ρ", "Kendall τ", "rows", "pairs", "same order", "reversed", "certainly"]
        caption = (
            "Pairs are those that the paper orders. A reversed one is certain if the 95 % interval (Student's t) of "
            "the difference, paired by seed, leaves out 0; nothing is corrected for the number of pairs."
        )
        parts.append(table(caption, header, rows))
    parts.append(reversals(agreements, board, True) + reversals(agreements, board, False))
    return "".join(parts) + again(study["again"])


def effects_section(study: dict) -> str:
    effects, unit = study["effects"], study["board"]["unit"]
    if not effects:
        return ""
    columns = list(dict.fromkeys(effect["column"] for effect in effects))
    columns.sort(key=lambda column: not any(e["is_average"] for e in effects if e["column"] == column))
    drawn = [
        chart(figures.forest([e for e in effects if e["column"] == column], column, unit), column) for column in columns
    ]
    better = "right" if study["board"]["larger_is_better"] else "left"
    note = (
        "Difference between neighbours of a ladder, paired by seed, with its 95 % interval (Student's t over seeds). "
        f"Better is to the {better}; blue is certainly better, orange certainly worse, the colour of text open. "
        "A hollow diamond is the paper's difference."
    )
    rows = [
        (
            escape(f"{e['ladder']}: +{e['step']}"),
            [tag("td", escape(e["column"]), class_="words")] * (len(columns) > 1)
            + [tag("td", tag("span", escape(e["text"]), class_=e["verdict"])), tag("td", str(e["seeds"]))]
            + [tag("td", signed(e["published"]))],
        )
        for e in effects
    ]
    header = ["step"] + ["column"] * (len(columns) > 1) + ["difference", "seeds", "paper"]
    caption = f"Difference{f' ({unit})' if unit else ''}, mean ± half of its 95 % interval."
    return (
        tag("h3", "What each step changes")
        + tag("p", escape(note), class_="soft")
        + charts(drawn)
        + tag("details", tag("summary", "The same as a table"), table(caption, header, rows))
        + again(study["again"])
    )


def legend(names: list[str], shown: list[str]) -> str:
    labels = []
    for place, name in enumerate(names):
        color, dash = figures.style_of(place)
        dashes = " ".join(map(str, dash))
        path = tag("path", d="M0 5H26", stroke=color, stroke_width="2.5", stroke_dasharray=dashes)
        swatch = tag("svg", path, class_="swatch", viewBox="0 0 26 10", aria_hidden="true")
        checked = " checked" if name in shown else ""
        box = f'<input type="checkbox" value="{escape(name)}"{checked}>'
        labels.append(tag("label", box, swatch, escape(name)))
    return tag("fieldset", tag("legend", "Shown:", class_="soft"), *labels)


def shown_first(study: dict, names: list[str]) -> list[str]:
    """The feet and the tops of the ladders, then other rows from the first on, as many as can be told apart."""
    feet = {effect["ladder"]: effect["from"] for effect in reversed(study["effects"])}
    tops = {effect["ladder"]: effect["to"] for effect in study["effects"]}
    ends = [name for name in names if name in {*feet.values(), *tops.values()}]
    return list(dict.fromkeys([*ends, *names]))[:MOST_SHOWN]


def curves_section(study: dict) -> str:
    if not study["curves"]:
        return ""
    first = study["board"]["measure"]
    titles = {column["label"]: column["title"] for column in study["board"]["columns"]}
    names = [row["label"] for row in study["board"]["rows"]]
    names = [name for name in names if any(line["row"] == name for lines in study["curves"].values() for line in lines)]
    shown = shown_first(study, names)
    parts = [tag("h3", "Curves"), tag("p", f"A line a run, against the {study['along']}.", class_="soft")]
    parts.append(legend(names, shown))
    for measure, lines in sorted(study["curves"].items(), key=lambda item: item[0] != first):
        columns = [label for label in titles if any(line["column"] == label for line in lines)]
        title = measure.replace("_", " ")
        drawn = charts(
            [
                chart(figures.curves(measure, lines, column, names, shown, study["along"]), titles[column] or title)
                for column in columns
            ]
        )
        parts.append(drawn if measure == first else tag("details", tag("summary", escape(title)), drawn))
    return tag("div", *parts, class_="curves drawn") + again(study["command"])


def settings(values: dict) -> str:
    pairs = (tag("dt", escape(name)) + tag("dd", escape(json.dumps(value))) for name, value in values.items())
    return tag("dl", *pairs, class_="settings")


def details_section(study: dict) -> str:
    details, configurations = study["details"], study["configurations"]
    measures = list(dict.fromkeys(name for row in details for name in row["measures"]))
    chosen = any(row["choice"] for row in details)
    failed = any(row["failed"] for row in details)
    header = [escape(", ".join(study["axes"]))] + ["chosen"] * chosen + ["parameters", "seeds"]
    header += [escape(name.replace("_", " ")) for name in measures] + ["failed"] * failed
    rows = []
    for row in details:
        cells = [tag("td", escape(row["choice"] or "–"), class_="words")] * chosen
        cells += [tag("td", row["parameters"] or "–"), tag("td", str(row["seeds"]))]
        cells += [tag("td", escape(row["measures"].get(name, "–"))) for name in measures]
        cells += [tag("td", str(row["failed"] or ""))] * failed
        rows.append((escape(", ".join(row["labels"])), cells))
    how = "Median" if study["board"]["timed"] else "Mean ± standard error"
    caption = f"{how} of every measure as it was recorded."
    if chosen:
        caption += " What was chosen was chosen by other seeds than those reported."
    cells = "".join(
        tag("details", tag("summary", escape(", ".join(cell["labels"]))), settings(cell["settings"]))
        for cell in configurations["cells"]
        if cell["settings"]
    )
    return tag(
        "div",
        tag("h3", "Measures, parameters and configurations"),
        tag("details", tag("summary", "Every measure"), table(caption, header, rows), again(study["again"])),
        tag("details", tag("summary", "What all runs have in common"), settings(configurations["common"])),
        tag("details", tag("summary", "What each has of its own"), cells) if cells else "",
        class_="more",
    )


def study_section(study: dict, place: int) -> str:
    parts = [tag("h2", escape(study["title"]), id=f"study-{place}")]
    if study["question"]:
        parts.append(tag("p", escape(study["question"]), class_="question"))
    if study["remark"]:
        parts.append(tag("p", escape(study["remark"])))
    runs = study["command"] or f"the call of {study['kind']} that wrote {study['place']}"
    parts.append(tag("p", "The runs: ", tag("code", escape(runs)), class_="again"))
    for part in (board_section, order_section, effects_section, curves_section, details_section):
        parts.append(part(study))
    return tag("section", *parts, aria_labelledby=f"study-{place}")


def contents(studies: list[dict]) -> str:
    items = []
    for place, study in enumerate(studies):
        main = main_agreement(study)
        told = tag("p", escape(main["sentence"] if main else study["question"]), class_="soft")
        items.append(tag("li", tag("a", escape(study["title"]), href=f"#study-{place}"), told))
    return tag("nav", tag("ul", *items), aria_label="Contents")


def page(numbers: dict) -> str:
    studies = numbers["studies"]
    versions = ", ".join(f"{name} {version}" for name, version in numbers["versions"].items())
    intro = (
        "Every figure below comes from records of runs, and stands beside the command that makes it again. "
        "Where the paper published one, its figure stands beside ours."
    )
    body = (
        tag("header", tag("h1", escape(numbers["title"])), tag("p", intro), contents(studies))
        + tag("main", *(study_section(study, place) for place, study in enumerate(studies)))
        + tag("footer", tag("p", f"Page of {escape(versions)}.", class_="soft"), again(numbers["command"]))
        + tag("script", data(numbers), type="application/json", id="numbers")
        + tag("script", library())
        + tag("script", DRAW)
    )
    return html_page.document(numbers["title"], SCRIPTS, html_page.part("report.css"), body)


def main(numbers: Path, out: Path) -> None:
    html_page.write(out, page(json.loads(numbers.read_text())))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Lays out the numbers of fem report as one page.")
    parser.add_argument("numbers", type=Path, metavar="NUMBERS")
    parser.add_argument("--out", type=Path, required=True, metavar="PAGE")
    arguments = parser.parse_args()
    main(arguments.numbers, arguments.out)
