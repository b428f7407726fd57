#!/usr/bin/env python3
"""Compares the vital signs of a GPU with what this program reads of NVML in the same run, every 10 to 15 ms.

    benches/gpu/vitals.py target/release/vitals [SECONDS [MILLIS]]

Each of six phases takes SECONDS (10), and kernspan reads every MILLIS (100). Energy is compared with the integral of
the instantaneous power, over the whole run and in each phase; traffic over PCIe with the bytes that were copied; other
signs with their means. Exits with 1 if energy is off by more than 2 % over the run or in a phase of LONG_PHASE or more.
"""

import bisect
import ctypes
import subprocess
import sys
import threading
import time

# Of nvml.h.
POWER_INSTANT, CLOCK_SM, CLOCK_MEM = 186, 1, 2
POWER_CAP, THERMAL = 0x4 | 0x80, 0x20 | 0x40
# In nanoseconds. A phase is cut at the first and the last reading, so that one of 10 s may be a little shorter.
LONG_PHASE = 9.5e9


class Memory(ctypes.Structure):
    """`nvmlMemory_v2_t`; the first version counts what the driver has reserved as used."""
    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")]


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class Field(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("scope", ctypes.c_uint), ("time", ctypes.c_longlong),
                ("latency", ctypes.c_longlong), ("type", ctypes.c_uint), ("result", ctypes.c_uint),
                ("value", ctypes.c_uint), ("high", ctypes.c_uint)]


class Meter:
    """Reads NVML until it is stopped."""

    def __init__(self):
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.device = ctypes.c_void_p()
        self.check(self.nvml.nvmlInit_v2())
        self.check(self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)))
        self.rows, self.running = [], True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def check(self, code):
        if code:
            raise OSError(f"NVML: {code}")

    def number(self, function, *arguments, kind=ctypes.c_uint):
        value = kind()
        self.check(getattr(self.nvml, function)(self.device, *arguments, ctypes.byref(value)))
        return value

    def memory(self):
        memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
        self.check(self.nvml.nvmlDeviceGetMemoryInfo_v2(self.device, ctypes.byref(memory)))
        return memory.used

    def run(self):
        while self.running:
            field = Field(id=POWER_INSTANT)
            before = time.time_ns()
            self.check(self.nvml.nvmlDeviceGetFieldValues(self.device, 1, ctypes.byref(field)))
            at = (before + time.time_ns()) // 2
            self.check(field.result)
            reasons = self.number("nvmlDeviceGetCurrentClocksThrottleReasons", kind=ctypes.c_ulonglong).value
            self.rows.append({
                "at": at,
                "power": field.value / 1e3,
                "counter": self.number("nvmlDeviceGetTotalEnergyConsumption", kind=ctypes.c_ulonglong).value / 1e3,
                "temperature": self.number("nvmlDeviceGetTemperature", 0).value,
                "clock": self.number("nvmlDeviceGetClockInfo", CLOCK_SM).value * 1e6,
                "memory_clock": self.number("nvmlDeviceGetClockInfo", CLOCK_MEM).value * 1e6,
                "memory_used": self.memory(),
                "utilization": self.number("nvmlDeviceGetUtilizationRates", kind=Utilization).gpu,
                "power_throttle": 100.0 if reasons & POWER_CAP else 0.0,
                "thermal_throttle": 100.0 if reasons & THERMAL else 0.0,
            })
            time.sleep(0.01)

    def stop(self):
        self.running = False
        self.thread.join()

    def integral(self, start, end):
        """The joules between two moments: trapezoids of the instantaneous power."""
        joules = 0.0
        for before, after in zip(self.rows, self.rows[1:]):
            begin, finish = max(before["at"], start), min(after["at"], end)
            if begin < finish:
                joules += (before["power"] + after["power"]) / 2 * (finish - begin) / 1e9
        return joules

    def mean(self, key, start, end):
        return mean_of([(row["at"], row[key]) for row in self.rows], start, end)


def value_at(samples, at):
    """A value between two readings, on the line through them."""
    index = bisect.bisect([time for time, _ in samples], at)
    if index in (0, len(samples)):
        return None
    (before, low), (after, high) = samples[index - 1], samples[index]
    return low + (high - low) * (at - before) / (after - before)


def mean_of(samples, start, end):
    """Each reading stands for the time since the one before."""
    total = weight = 0.0
    for (before, _), (after, value) in zip(samples, samples[1:]):
        nanos = min(after, end) - max(before, start)
        if nanos > 0:
            total, weight = total + nanos * value, weight + nanos
    return total / weight if weight else None


def main():
    if not 2 <= len(sys.argv) <= 4:
        print(__doc__, file=sys.stderr)
        return 2
    program, seconds, millis = (sys.argv[1:] + ["10", "100"][len(sys.argv) - 2:])[:3]
    meter = Meter()
    output = subprocess.run([program, seconds, millis], stdout=subprocess.PIPE, text=True, check=False)
    meter.stop()
    if output.returncode:
        return output.returncode
    if len(meter.rows) < 2:
        print("NVML was not read", file=sys.stderr)
        return 1
    phases, signs, run = [], {}, None
    for line in output.stdout.splitlines():
        kind, *words = line.split(" ")
        if kind == "phase":
            phases.append((words[0], int(words[1]), int(words[2]), int(words[3])))
        elif kind == "sign":
            signs.setdefault(words[0], []).append((int(words[1]), float(words[2])))
        elif kind == "energy" and words[0].startswith("gpu"):
            run = words
        else:
            print(line)
    # The first reading of a window is the last one before it.
    signs = {name: samples[1:] for name, samples in signs.items()}
    gpu = lambda name: signs.get(f"gpu0.{name}", [])
    energy, power = gpu("energy"), gpu("power")
    if not energy or not power:
        print("no energy of the GPU was read")
        return 1
    start, end = energy[0][0], energy[-1][0]
    print(f"{len(energy)} readings in {(end - start) / 1e9:.1f} s; {len(meter.rows)} of this program\n")

    failed = False
    print(f"{'energy':12}{'seconds':>10}{'kernspan':>12}{'integral':>12}{'off':>9}{'by power':>12}{'off':>9}")
    for name, begin, finish, _ in [("all", start, end, 0), *phases]:
        begin, finish = max(begin, start), min(finish, end)
        ends = value_at(energy, max(begin, start + 1)), value_at(energy, min(finish, end - 1))
        if None in ends:
            continue
        ours, theirs = ends[1] - ends[0], meter.integral(begin, finish)
        # What is integrated where there is no counter.
        inside = [pair for pair in power if begin <= pair[0] <= finish]
        trapezoids = sum((low + high) / 2 * (after - before) / 1e9
                         for (before, low), (after, high) in zip(inside, inside[1:]))
        exact = meter.integral(inside[0][0], inside[-1][0]) if len(inside) > 1 else 0.0
        off = 100 * (ours / theirs - 1)
        failed |= abs(off) > 2 and finish - begin > LONG_PHASE
        by_power = f"{trapezoids:10.1f} J{100 * (trapezoids / exact - 1):+8.2f}%" if exact else ""
        print(f"{name:12}{(finish - begin) / 1e9:10.2f}{ours:10.1f} J{theirs:10.1f} J{off:+8.2f}%{by_power}")
    _, method, joules, error, time_taken = run
    print(f"\nof the run: {float(joules):.1f} ± {float(error):.1f} J in {float(time_taken):.2f} s, by {method}")
    ends = [row["counter"] for row in meter.rows if start <= row["at"] <= end]
    print(f"NVML's counter, read by this program: {ends[-1] - ends[0]:.1f} J\n")

    print(f"{'mean of':18}{'kernspan':>16}{'this program':>16}")
    for key in ("utilization", "memory_used", "temperature", "clock", "memory_clock", "power", "power_throttle",
                "thermal_throttle"):
        ours = mean_of(gpu(key), start, end)
        print(f"{key:18}{ours if ours is None else f'{ours:16.6g}'}{meter.mean(key, start, end):16.6g}")
        for name, begin, finish, _ in phases:
            ours = mean_of(gpu(key), begin + 1e9, finish)
            if ours is not None:
                print(f"  {name:16}{ours:16.6g}{meter.mean(key, begin + 1e9, finish):16.6g}")
    print(f"\n{'PCIe, GB/s':18}{'received':>12}{'sent':>12}{'copied':>12}")
    for name, begin, finish, copied in phases:
        rates = [mean_of(gpu(key), begin + 1.2e9, finish) or 0.0 for key in ("pcie_received", "pcie_sent")]
        print(f"{name:18}{rates[0] / 1e9:12.3f}{rates[1] / 1e9:12.3f}{copied / (finish - begin):12.3f}")
    print(f"\nlargest of other processes: {max((value for _, value in gpu('other_processes')), default=None)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
