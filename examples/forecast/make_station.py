#!/usr/bin/env python3
"""Makes station.csv: 90 days of a weather station and a town's load, invented. Usage: make_station.py > station.csv"""

import math
import random
from datetime import datetime, timedelta

HOURS = 90 * 24


def main() -> None:
    draw = random.Random(7)
    start = datetime(2024, 3, 1)
    print("time,temperature,load,wind")
    weather, wind = 0.0, 0.0
    for hour in range(HOURS):
        now = start + timedelta(hours=hour)
        weather = 0.97 * weather + draw.gauss(0, 0.8)
        wind = 0.9 * wind + draw.gauss(0, 0.9)
        day = 2 * math.pi * (now.hour - 15) / 24
        temperature = 8 + 6 * hour / HOURS + 5 * math.cos(day) + weather
        working = now.weekday() < 5
        peak = math.exp(-(((now.hour - 8) / 2.5) ** 2)) + 1.2 * math.exp(-(((now.hour - 19) / 3) ** 2))
        load = 40 + (22 if working else 13) * peak - 0.9 * (temperature - 12) + draw.gauss(0, 1.2)
        speed = max(0.0, 4 + wind + 1.2 * math.cos(day))
        # A logger that is off now and then.
        cell = "" if draw.random() < 0.004 else f"{speed:.1f}"
        print(f"{now:%Y-%m-%d %H:%M},{temperature:.1f},{load:.1f},{cell}")


if __name__ == "__main__":
    main()
