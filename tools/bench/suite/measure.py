"""Samples, ratios, and the order in which contestants take turns."""
import dataclasses
import statistics


@dataclasses.dataclass
class Samples:
    unit: str
    values: list

    @property
    def median(self):
        return statistics.median(self.values)

    def as_json(self):
        return {"unit": self.unit, "median": self.median, "min": min(self.values), "max": max(self.values),
                "samples": self.values}


@dataclasses.dataclass
class Ratio:
    """One figure that has a target. `value` comes from the medians, low and high from the single rounds. `least`: what the
    kernel's part alone (kernels_part.py) has in the place of `value`, from the same rounds; None when nobody measured it."""
    of: str
    value: float
    low: float
    high: float
    target: float
    at_least: bool = True
    unit: str = ""
    least: float | None = None

    @property
    def met(self):
        return self._is_enough(self.value)

    @property
    def can_be_had(self):
        """Here: not what the kernel's part alone misses, when this is as near to that as it was to be to the others."""
        if self.met or self.least is None or self._is_enough(self.least):
            return True
        return self.at_least and self.value < self.target * self.least

    def _is_enough(self, value):
        return value >= self.target if self.at_least else value <= self.target

    def as_json(self):
        return dict(dataclasses.asdict(self), met=self.met, can_be_had=self.can_be_had)


@dataclasses.dataclass
class Measure:
    """One line of a row's results: figures of everybody who took part, and the ratios that have a target. `table`: the title
    of one table for all measures that name it, where `WHO`, `WHO, encoding`, ... of a measure share a cell."""
    name: str
    figures: dict
    ratios: list = dataclasses.field(default_factory=list)
    table: str = None

    def as_json(self):
        said = {"name": self.name, "figures": {name: samples.as_json() for name, samples in self.figures.items()},
                "ratios": [ratio.as_json() for ratio in self.ratios]}
        return dict(said, table=self.table) if self.table else said


def rotate(runs, contestants, unit="B/s", progress=None):
    """Every contestant once per round, `runs` rounds; each round begins with another one, and every second one goes
    backwards, so that nobody always runs in somebody else's wake. {name: Samples}."""
    names = list(contestants)
    values = {name: [] for name in names}
    for run in range(runs):
        start = run // 2 % len(names)
        order = names[start:] + names[:start]
        for name in order if run % 2 == 0 else reversed(order):
            values[name].append(contestants[name]())
            if progress:
                progress(name, values[name][-1])
    return {name: Samples(unit, found) for name, found in values.items()}


def ratio(figures, mine, others, target, at_least=True, least=None):
    """`mine` over the smallest of `others`. `least`: who does the kernel's part only."""
    others = [name for name in others if name in figures]
    value = figures[mine].median / min(figures[name].median for name in others)
    rounds = [mine_value / min(figures[name].values[index] for name in others)
              for index, mine_value in enumerate(figures[mine].values)
              if all(index < len(figures[name].values) for name in others)]
    of = f"{mine} / {others[0]}" if len(others) == 1 else f"{mine} / min({', '.join(others)})"
    of_least = figures[least].median / min(figures[name].median for name in others) if least else None
    return Ratio(of, value, min(rounds), max(rounds), target, at_least, least=of_least)


def limit(figures, mine, target, at_least=False, least=None):
    """A figure that has a target of its own. `least`: who does the kernel's part only."""
    samples = figures[mine]
    return Ratio(mine, samples.median, min(samples.values), max(samples.values), target, at_least, samples.unit,
                 figures[least].median if least else None)
