"""How the authors' file, dialect "corrected" and the paper's printed equations differ, in words."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from fem._reference_effects import LOST_AFTER, Effects, has_printed_twin
from fem.config import FreeEnergyMixerConfig


@dataclass
class Difference:
    """One thing that the authors' file computes differently from another dialect."""

    title: str
    """A few words."""
    words: str
    """What that file computes, and what the other does."""
    reproduced: bool
    """True: the mixer computes it as that file does. False: a fault that it does not imitate."""
    comparison: str
    """y', which `effect` compares with y, the output of the mixer."""
    needs: str
    """What a measurement takes."""
    effect: float | None = None
    """||y - y'|| / ||y|| over the real tokens of the given input, in float64; None if not measured. The core switches
    all reproduced differences together, so they share one number."""


@dataclass
class ReferenceReport:
    """What the authors' file computed differently with one configuration. `print(report)` tells it in words."""

    differences: list[Difference]
    """From dialect "corrected", those that apply to the configuration."""
    printed: Difference
    """From dialect "paper", the equations as the paper prints them."""

    def __str__(self) -> str:
        reproduced = [d for d in self.differences if d.reproduced]
        faults = [d for d in self.differences if not d.reproduced]
        text = ['Weights of the authors\' file, computed with dialect="reference".', ""]
        if reproduced:
            text += ['That file differs from dialect "corrected", and this mixer computes what the file does:']
            text += [_item(difference) for difference in reproduced]
            text += [_measurement(reproduced[0], "Measured together" if len(reproduced) > 1 else "Measured"), ""]
        else:
            text += ['With this configuration the formulas of that file are those of dialect "corrected".', ""]
        text += ["Faults of that file, which this mixer does not imitate:"]
        for difference in faults:
            text += [_item(difference), _measurement(difference)]
        text += ["", "The equations that the paper prints are another thing:"]
        text += [_item(self.printed), _measurement(self.printed)]
        return "\n".join(text)


def report_on(config: FreeEnergyMixerConfig, head_key: int | None, effects: Effects) -> ReferenceReport:
    """The differences that apply; head_key is the width K of a head's queries, None without queries."""
    formulas = 'dialect "corrected" with the same weights'
    free_energy = config.use_lse or config.use_temperature
    differences = []

    def formula(title: str, words: str) -> None:
        differences.append(Difference(title, words, True, formulas, "x", effects.formulas))

    if config.use_rope is not False and head_key is not None and head_key > 2:  # a single pair has a single frequency
        formula(
            "Rotary pairs",
            "Element c of a query or key takes the angle of frequency c mod K/2, although the pairs are (2m, 2m+1): "
            "the two elements of a pair turn by different angles. That is not a rotation, and scores do not depend on "
            "distances alone. Corrected, a pair turns by one angle.",
        )
    if config.prior_type == "rnn_softmax" and free_energy:
        formula(
            "q inside the logarithm",
            "q multiplies both mixed streams, so the free energy becomes F + log(q)/beta. Corrected, q multiplies the "
            "mean and the free energy after the read.",
        )
    if config.prior_type == "gla":
        formula(
            "Decay of gla",
            "The log-decay is -(relu(.) + eps), and the conditioner's slice for it, if there is a conditioner, is not "
            "used: where relu is 0 a head forgets next to nothing. Corrected, it is -softplus(.), modulated.",
        )
    if config.prior_type == "mamba":
        floor = " The normaliser is floored at eps, which D >= eps keeps it above." if config.mamba_normalize else ""
        formula(
            "Step and values of mamba",
            "Delta = exp(-softplus(.)), which is at most 1 and falls where the corrected softplus(.) grows; and values "
            f"pass a sigmoid before they are read, corrected they do not.{floor}",
        )
    if config.use_conv:
        differences.append(
            Difference(
                "Dead conditioner",
                "The conditioner's state was computed by dividing by a cumulative envelope. In float32 this loses the "
                f"state after about {LOST_AFTER} tokens, so these weights may have been trained with a conditioner "
                "that said nothing there. This mixer runs an exact scan: the conditioner speaks at any length.",
                False,
                f"the same layer whose conditioner has h = 0 at every token after the first {LOST_AFTER}",
                "x" if config.causal else "a causal mixer",
                effects.conditioner,
            )
        )
    differences.append(
        Difference(
            "Padding counts",
            "Padding was added as tokens with score zero, counted as positions and moved the conditioner, so a padded "
            "batch computed something else than its rows alone. Here a masked token does not exist.",
            False,
            "padding as ordinary tokens whose x is 0, compared at the real tokens",
            "x and attention_mask",
            effects.padding,
        )
    )
    return ReferenceReport(differences, _printed(config, effects.printed))


def _printed(config: FreeEnergyMixerConfig, effect: float | None) -> Difference:
    parts = []
    if config.use_conv:
        parts += [
            "the conditioner's gate passes a SiLU and has no factor sqrt(H_c), the prior's parameters are added to "
            "instead of multiplied, and the gates are modulated after their nonlinearity"
        ]
    if config.prior_type == "rnn_softmax":
        parts += ["there is no q, and every channel has a key of its own"]
    if config.prior_type == "mamba":
        parts += ["a token reaches the state after it was read, and Delta, B and C are modulated"]
    words = "; ".join(parts) or 'with this configuration nothing differs from dialect "corrected"'
    needs = "x" if has_printed_twin(config) else "a prior whose printed form has the same parameters"
    return Difference(
        'Dialect "paper"',
        words[0].upper() + words[1:] + ".",
        False,
        'dialect "paper" with the same weights',
        needs,
        effect,
    )


def _item(difference: Difference) -> str:
    text = f"{difference.title}. {difference.words}"
    return textwrap.fill(text, 100, initial_indent="  - ", subsequent_indent="    ")


def _measurement(difference: Difference, measured: str = "Measured") -> str:
    if difference.effect is None:
        text = f"Not measured (that takes {difference.needs}): y against {difference.comparison}."
    else:
        text = f"{measured}: {difference.effect:.2%} = ||y - y'|| / ||y||, y': {difference.comparison}."
    return textwrap.fill(text, 100, initial_indent="    ", subsequent_indent="    ")
