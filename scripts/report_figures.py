"""The report's figures as Vega-Lite specifications: they lay out what fem report has computed."""

from palette import BLACK, BLUE, CURVES, PURPLE, VERMILION

DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
ROW_HEIGHT, LINE_HEIGHT, AXIS_HEIGHT = 22, 13, 46
PAPER = {"type": "point", "shape": "diamond", "color": PURPLE, "size": 70, "strokeWidth": 1.8}
VERDICTS = {"better": BLUE, "worse": VERMILION, "open": BLACK}

CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal", "labelLimit": 150, "ticks": False,
             "domain": False, "gridWidth": 1, "labelPadding": 6, "tickCount": 5, "labelSeparation": 4},
}  # fmt: skip


def _chart(description: str, layers: list[dict], height: float, values: list[dict], **more) -> dict:
    # A layer without values has no extent, of which Vega complains.
    fields = {name for value in values for name, content in value.items() if content is not None}
    layers = [layer for layer in layers if layer["encoding"]["x"].get("field") in fields | {None}]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "description": description,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "config": CONFIG,
        "data": {"values": values},
        "layer": layers,
        **more,
    }


def style_of(place: int) -> tuple[str, list[int]]:
    """The colour and the dashes of the place-th curve: both change before a pair comes again."""
    return CURVES[place % len(CURVES)], DASHES[place // len(CURVES) % len(DASHES)]


def _rows_axis(names: list[str]) -> dict:
    # What stands behind a comma has a line of its own: cut off, two rows may look the same.
    axis = {"grid": True, "labelExpr": "split(datum.label, ', ')"}
    return {"field": "row", "type": "nominal", "sort": names, "title": None, "axis": axis}


def _height(names: list[str]) -> float:
    lines = max((name.count(", ") for name in names), default=0)
    return (ROW_HEIGHT + LINE_HEIGHT * lines) * len(names) + AXIS_HEIGHT


def every_run(board: dict, column: int) -> dict:
    """Each seed a dot, their mean or median a bar, the paper's figure a diamond where it is a plain number."""
    values = []
    for row in board["rows"]:
        cell = row["cells"][column]
        name = row["label"]
        values += [{"row": name, "seed": seed, "value": value} for seed, value in cell["seeds"].items()]
        if cell["middle"] is not None:
            values.append({"row": name, "middle": cell["middle"], "text": cell["text"]})
        if cell["published_value"] is not None:
            values.append({"row": name, "paper": cell["published_value"], "text": cell["published"]})
    names = [row["label"] for row in board["rows"]]
    y = _rows_axis(names)

    def x(field: str) -> dict:
        title = " ".join(filter(None, [board["measure"], f"({board['unit']})" if board["unit"] else ""]))
        return {"field": field, "type": "quantitative", "title": title, "scale": {"zero": False, "padding": 8}}

    def layer(field: str, mark: dict, tooltip: list[str]) -> dict:
        return {
            "transform": [{"filter": f"isValid(datum.{field})"}],
            "mark": mark,
            "encoding": {"x": x(field), "y": y, "tooltip": [{"field": name, "type": "nominal"} for name in tooltip]},
        }

    dot = {"type": "point", "color": BLUE, "size": 36, "opacity": 0.55, "filled": True}
    layers = [
        layer("paper", PAPER, ["row", "text"]),
        layer("value", dot, ["row", "seed", "value"]),
        layer("middle", {"type": "tick", "color": BLUE, "thickness": 2.5, "size": 15}, ["row", "text"]),
    ]  # fmt: skip
    title = board["columns"][column]["title"] or board["measure"]
    description = f"{title}: {board['measure']} of every run, by {board['row_axis'] or 'run'}"
    return _chart(description, layers, _height(names), values)


def forest(effects: list[dict], column: str, unit: str) -> dict:
    """What each step changes in one column, with its interval; the paper's difference a diamond."""
    own = [{**effect, "row": f"{effect['ladder']}: +{effect['step']}"} for effect in effects]
    names = [effect["row"] for effect in own]
    y = _rows_axis(names)
    tooltip = [{"field": name, "type": "nominal"} for name in ("from", "to", "text", "seeds", "published")]
    color = {"field": "verdict", "type": "nominal", "legend": None,
             "scale": {"domain": list(VERDICTS), "range": list(VERDICTS.values())}}  # fmt: skip

    def x(field: str) -> dict:
        return {"field": field, "type": "quantitative", "title": f"difference ({unit})" if unit else "difference"}

    layers = [
        {"mark": {"type": "rule", "color": BLACK, "opacity": 0.5}, "encoding": {"x": {"datum": 0}}},
        {"transform": [{"filter": "isValid(datum.low)"}], "mark": {"type": "rule", "strokeWidth": 2},
         "encoding": {"x": x("low"), "x2": {"field": "high"}, "y": y, "color": color, "tooltip": tooltip}},
        {"mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
         "encoding": {"x": x("mean"), "y": y, "color": color, "tooltip": tooltip}},
        {"transform": [{"filter": "isValid(datum.published)"}],
         "mark": PAPER,
         "encoding": {"x": x("published"), "y": y, "tooltip": tooltip}},
    ]  # fmt: skip
    described = "; ".join(f"{effect['row']} {effect['text']}" for effect in own)
    return _chart(
        f"{column or 'Differences'}, with 95 % intervals: {described}",
        layers,
        _height(names),
        own,
    )


def curves(measure: str, lines: list[dict], column: str, names: list[str], shown: list[str], along: str) -> dict:
    """A line a run against the step, which is called `along`; the page's legend sets `shown`."""
    values = [
        {"row": line["row"], "seed": line["seed"], "step": step, "value": value}
        for line in lines
        if line["column"] == column
        for step, value in line["points"]
    ]
    styles = [style_of(place) for place in range(len(names))]
    encoding = {
        "x": {"field": "step", "type": "quantitative", "title": along},
        "y": {"field": "value", "type": "quantitative", "title": measure.replace("_", " "), "scale": {"zero": False}},
        "detail": {"field": "seed", "type": "nominal"},
        "color": {"field": "row", "type": "nominal", "legend": None,
                  "scale": {"domain": names, "range": [color for color, _ in styles]}},
        "strokeDash": {"field": "row", "type": "nominal", "legend": None,
                       "scale": {"domain": names, "range": [dash for _, dash in styles]}},
        "tooltip": [{"field": name, "type": "nominal"} for name in ("row", "seed", "step", "value")],
    }  # fmt: skip
    layers = [{"mark": {"type": "line", "strokeWidth": 1.6, "opacity": 0.8}, "encoding": encoding}]
    return _chart(
        f"{measure} against the {along}{' of ' + column if column else ''}: {', '.join(names)}",
        layers,
        220,
        values,
        params=[{"name": "shown", "value": shown}],
        transform=[{"filter": "indexof(shown, datum.row) >= 0"}],
    )


def against_paper(board: dict, column: int) -> dict:
    """Every row's mean here against the paper's figure."""
    values = [
        {"row": row["label"], "paper": cell["published_value"], "here": cell["middle"], "text": cell["text"]}
        for row in board["rows"]
        for cell in [row["cells"][column]]
        if cell["middle"] is not None and cell["published_value"] is not None
    ]
    unit = f" ({board['unit']})" if board["unit"] else ""

    def axis(field: str, title: str) -> dict:
        return {"field": field, "type": "quantitative", "title": title + unit, "scale": {"zero": False, "padding": 12}}

    encoding = {"x": axis("paper", "paper"), "y": axis("here", "here")}
    tooltip = [{"field": name, "type": "nominal"} for name in ("row", "paper", "text")]
    layers = [
        {"mark": {"type": "point", "color": BLUE, "filled": True, "size": 60},
         "encoding": {**encoding, "tooltip": tooltip}},
        {"mark": {"type": "text", "fontSize": 11}, "encoding": {**encoding, "text": {"field": "row"}}},
    ]  # fmt: skip
    title = board["columns"][column]["title"] or board["measure"]
    # Vega-Lite cannot ask for Vega's placement of labels: beside their dots, and none where there is no room.
    anchors = ["top", "bottom", "right", "left", "top-right", "top-left", "bottom-right", "bottom-left"]
    place = {"type": "label", "size": {"signal": "[width, height]"}, "anchor": anchors, "offset": [5],
             "avoidMarks": ["layer_0_marks"]}  # fmt: skip
    patch = [{"op": "add", "path": "/marks/1/transform", "value": [place]}]
    description = f"{title}: the paper's figure and ours of {len(values)} rows"
    return _chart(description, layers, 400, values, usermeta={"embedOptions": {"patch": patch}})
