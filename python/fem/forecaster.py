"""Forecasts of tables of numbers: `Forecaster.from_pretrained(folder)` takes what `fem forecast train` has made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fem._task_model import TaskModel

__all__ = ["Forecaster"]


class Forecaster(TaskModel):
    """Standardised windows [B, input, columns] -> standardised forecasts [B, horizon, targets].

    One call of the C++ core on parameters held here: the same weights give bitwise the same numbers there and here.
    `predict` goes from a data frame to a data frame.

    Args:
        options: the fields of config.json: columns, targets, mean, deviation, horizon, input, and those of a backbone.
    """

    _name = "forecaster"

    @property
    def columns(self) -> list[str]:
        """The columns that are read, in their order."""
        return list(self.options["columns"])

    @property
    def targets(self) -> list[str]:
        """The columns that are forecast."""
        return list(self.options["targets"])

    @property
    def horizon(self) -> int:
        """Rows of a forecast."""
        return int(self.options["horizon"])

    @property
    def input(self) -> int:
        """Rows of the past that a forecast is made of."""
        return int(self.options["input"])

    def forward(self, windows: Tensor) -> Tensor:
        """The forecasts of standardised windows, with gradients."""
        future: Tensor = torch.ops.fem.forecast(windows, self._weights(), self._config, self.training)
        return future

    def predict(self, table: Any) -> Any:
        """The rows that follow the last of a table, in its units.

        Args:
            table: a data frame with the model's columns (others are passed over) and at least `input` rows without
                gaps, or a tensor [..., input, columns] of its values.

        Returns:
            A data frame of the targets, whose index goes on as far apart as the table's last two; or a tensor
            [..., horizon, targets], float64.
        """
        if isinstance(table, Tensor):
            values = table.reshape(-1, *table.shape[-2:])
            said: Tensor = torch.ops.fem.forecast_values(values, self._weights(), self._config)
            return said.reshape(*table.shape[:-2], *said.shape[-2:])
        missing = [name for name in self.columns if name not in table.columns]
        if missing:
            raise ValueError(f"Forecaster: expected the columns {self.columns}, but the table has no {missing[0]!r}")
        if len(table) < self.input:
            raise ValueError(f"Forecaster: expected at least {self.input} rows, got {len(table)}")
        last = table[self.columns].iloc[-self.input :]
        values = torch.tensor(last.to_numpy(dtype="float64"))
        if not bool(torch.isfinite(values).all()):
            raise ValueError("Forecaster: expected finite values, got gaps; fill them first (DataFrame.ffill)")
        said = self.predict(values)
        return type(table)(said.numpy(), columns=self.targets, index=_index_after(table.index, self.horizon))


def _index_after(index: Any, count: int) -> Sequence[Any]:
    step = index[-1] - index[-2] if len(index) > 1 else 1
    return [index[-1] + step * (i + 1) for i in range(count)]
