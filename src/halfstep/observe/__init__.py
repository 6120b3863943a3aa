"""How ranges are found: observers, and FakeQuantize for simulation and training."""

from halfstep.observe.fake_quantize import FakeQuantize
from halfstep.observe.histograms import EntropyObserver, HistogramObserver, PercentileObserver
from halfstep.observe.observer import Observer, reset_observers
from halfstep.observe.ranks import sync_observers
from halfstep.observe.simple import FixedObserver, MinMaxObserver, MovingAverageObserver

__all__ = [
    "EntropyObserver",
    "FakeQuantize",
    "FixedObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageObserver",
    "Observer",
    "PercentileObserver",
    "reset_observers",
    "sync_observers",
]
