"""Pictures of a dataset: where splits lie, classes and statistics of its rows."""

from __future__ import annotations

from dataclasses import dataclass

from labeled.dataset.dataset import Dataset
from labeled.dataset.selecting import heaviest
from labeled.dataset.summary import split_lines, split_words
from labeled.display.batches import as_names
from labeled.display.classes import ClassNames, class_names_of
from labeled.display.figures import Axes, draw_counts, draw_statistics, draw_stretches
from labeled.display.text import count_words
from labeled.errors import ArrayError


@dataclass(frozen=True, repr=False)
class DatasetPlots:
    """What ``dataset.plot`` offers. Each picture returns its axes and takes ``ax=``."""

    dataset: Dataset

    def __call__(self, source: str | None = None, *, n: int = 16, ax: Axes | None = None) -> Axes:
        """Draw the first `n` rows, as :meth:`labeled.Batch.plot` draws a batch of them.

        Where sources differ in length, those as long as `source` are looked at, or without one
        those that hold most.

        Raises
        ------
        UnknownNameError, ArrayError
            If there is no such source, it holds no numbers, or there are no rows.
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        alike = heaviest(self.dataset)
        if source is not None:
            n_rows = len(self.dataset.selection(source))
            alike = [name for name, rows in self.dataset._rows.items() if len(rows) == n_rows]
        chosen = self.dataset.select(*alike) if alike else self.dataset
        for batch in chosen.subset(slice(n)).batches(n):
            return batch.plot(source, n=n, ax=ax)
        raise ArrayError(f"there is nothing to draw: no rows of {self.dataset.where} are chosen")

    def __repr__(self) -> str:
        offered = "plot(), plot.splits(), plot.statistics(), plot.classes()"
        return f"<plots of {self.dataset.where}: {offered}>"

    def splits(self, *, ax: Axes | None = None) -> Axes:
        """Draw where in the file the rows of each split lie; reads no rows.

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        lines = split_lines(self.dataset.files.catalog)
        sources = self.dataset.sources
        return draw_stretches(
            {line.name: line.lies for line in lines},
            {line.name: split_words(line.rows, sources) for line in lines},
            max((line.span for line in lines), default=0),
            "where the rows of splits lie",
            ax,
        )

    def statistics(self, source: str, *, ax: Axes | None = None) -> Axes:
        """Draw mean, deviation and extremes of a source, by channel where it has channels.

        Those stored in the file are used where they are of these rows; else every row is read.

        Raises
        ------
        ArrayError
            If the source holds no numbers.
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        return draw_statistics(self.dataset.statistics(source), f"values of {source!r}", ax)

    def classes(
        self, source: str, *, class_names: ClassNames | None = None, ax: Axes | None = None
    ) -> Axes:
        """Draw how many rows each class of a source of labels has.

        Parameters
        ----------
        source : str
            One integer a row.
        class_names : list or mapping, optional
            In the place of those in the file.

        Raises
        ------
        ArrayError
            If the source holds no labels.
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        found = self.dataset.statistics(source)
        if "classes" not in found:
            raise ArrayError(
                f"source {source!r} of {self.dataset.where} holds no labels, one integer a row (or "
                "more of them than can be drawn)"
            )
        counts = {int(value): n for value, n in found["classes"].items()}
        own = class_names_of(self.dataset.files.catalog.sources[source].attrs)
        names = own if class_names is None else as_names(class_names)
        title = f"classes of {source!r}, {count_words(found['n_rows'], 'row')}"
        return draw_counts(counts, names, title, ax)
