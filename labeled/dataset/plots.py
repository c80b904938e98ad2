"""Pictures of a dataset: where splits lie, classes and statistics of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from labeled.dataset.summary import SplitLine, split_words
from labeled.display.batches import ClassNames, as_names
from labeled.display.figures import Axes, draw_counts, draw_statistics, draw_stretches
from labeled.display.text import count_words
from labeled.errors import ArrayError
from labeled.loader.batch import Batch


@dataclass(frozen=True, repr=False)
class DatasetPlots:
    """What ``dataset.plot`` offers. Each picture returns its axes and takes ``ax=``.

    Parameters
    ----------
    where : str
    split_lines : callable
        Returns the splits.
    sources : callable
        Returns the names of the sources, to tell which of them a split lacks.
    statistics : callable
        Returns the statistics of a source.
    class_names : callable
        Returns the names of the classes of a source.
    first : callable
        Returns batches of the first rows, so many of them: one, or none; of a source and those
        as long as it, or where None is given, of those of one length that hold most.
    """

    where: str
    split_lines: Callable[[], Sequence[SplitLine]]
    sources: Callable[[], Sequence[str]]
    measured: Callable[[str], Mapping[str, Any]]
    class_names: Callable[[str], Mapping[int, str]]
    first: Callable[[int, str | None], Iterable[Batch]]

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
        for batch in self.first(n, source):
            return batch.plot(source, n=n, ax=ax)
        raise ArrayError(f"there is nothing to draw: no rows of {self.where} are chosen")

    def __repr__(self) -> str:
        return f"<plots of {self.where}: plot(), plot.splits(), plot.statistics(), plot.classes()>"

    def splits(self, *, ax: Axes | None = None) -> Axes:
        """Draw where in the file the rows of each split lie; reads no rows.

        Raises
        ------
        MissingExtraError
            If matplotlib, the extra ``plot``, is not installed.
        """
        lines = self.split_lines()
        sources = self.sources()
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
        return draw_statistics(self.measured(source), f"values of {source!r}", ax)

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
        found = self.measured(source)
        if "classes" not in found:
            raise ArrayError(
                f"source {source!r} of {self.where} holds no labels, one integer a row (or more "
                "of them than can be drawn)"
            )
        counts = {int(value): n for value, n in found["classes"].items()}
        names = self.class_names(source) if class_names is None else as_names(class_names)
        title = f"classes of {source!r}, {count_words(found['n_rows'], 'row')}"
        return draw_counts(counts, names, title, ax)
