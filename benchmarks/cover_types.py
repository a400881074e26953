"""Generated rows like those of the dataset "covertype": seven kinds of forest by altitude, terrain and soil.

As there, ten inputs are numbers on different scales, 44 are indicators of an area (one of 4) and a soil (one of 40), and
the classes are of very different sizes. The class is drawn from known probabilities, so no model can have an accuracy of 1.
"""

from __future__ import annotations

import numpy as np

AREAS, SOILS = 4, 40
# best altitude of each kind in metres, how quickly it becomes rare elsewhere, and how common it is
ALTITUDES = np.array([3130.0, 2920.0, 2390.0, 2220.0, 2790.0, 2420.0, 3360.0])
WIDTHS = np.array([160.0, 220.0, 180.0, 120.0, 110.0, 170.0, 110.0])
COMMON = np.array([1.5, 2.0, 0.3, -1.5, 1.0, 0.5, 0.0])


def generate(num_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (N, 54) and classes 1 to 7."""
    rng = np.random.default_rng(seed)
    area = rng.choice(AREAS, num_rows, p=[0.45, 0.05, 0.43, 0.07])
    altitude = np.array([3000.0, 3300.0, 2950.0, 2300.0])[area] + rng.normal(0, 200, num_rows)
    # in radians
    aspect, slope = rng.uniform(0, 2 * np.pi, num_rows), rng.gamma(4, 0.06, num_rows)
    # light on the slope while the sun is in the east, south and west, 45 degrees high
    light = [
        180 * np.clip(np.cos(slope) + np.sin(slope) * np.cos(aspect - sun), 0, None)
        for sun in (np.pi / 2, np.pi, 3 * np.pi / 2)
    ]
    water, above_water = rng.gamma(1.5, 180, num_rows), rng.normal(45, 60, num_rows)
    roads, fires = rng.gamma(2, 1100, num_rows), rng.gamma(2, 900, num_rows)
    # a soil is typical of an altitude
    typical = np.linspace(2000, 3500, SOILS)
    distance = (altitude[:, None] + rng.normal(0, 150, (num_rows, SOILS)) - typical) / 300
    soil = (rng.gumbel(size=(num_rows, SOILS)) - distance**2 + rng.normal(0, 1, SOILS)).argmax(1)
    by_soil, by_area = rng.normal(0, 0.8, (SOILS, 7)), rng.normal(0, 0.5, (AREAS, 7))
    # northern slopes are like higher ones
    felt = altitude + 360 * np.cos(aspect) * np.sin(slope) + 0.05 * roads
    utility = COMMON - (felt[:, None] - ALTITUDES) ** 2 / (2 * WIDTHS**2) + by_soil[soil] + by_area[area]
    # one kind grows near water
    utility[:, 3] += 2.5 * np.exp(-water / 120)
    kind = 1 + (utility + 0.5 * rng.gumbel(size=utility.shape)).argmax(1)
    numbers = np.column_stack(
        [altitude, np.degrees(aspect), np.degrees(slope), water, above_water, roads, *light, fires]
    )
    return np.column_stack([numbers, np.eye(AREAS)[area], np.eye(SOILS)[soil]]), kind
