"""Writes the corpora that the fuzz targets start from: windows that were recorded on a GPU, and files of PyTorch."""

import gzip
import pathlib

here = pathlib.Path(__file__).parent
corpus = here / "corpus" / "replay"
corpus.mkdir(parents=True, exist_ok=True)


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def records(message):
    """Returns field 17 of the message: CUPTI's records, each after its length."""
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        value, at = varint(message, at)
        if tag & 7 == 2:
            if tag >> 3 == 17:
                return message[at : at + value]
            at += value
    return b""


for nth, name in enumerate(["training", "calls"]):
    message = gzip.decompress((here / f"../tests/fixtures/gpu/{name}.kernspan").read_bytes())
    found = records(message)
    for export in (0, 240):
        (corpus / f"{name}_file_{export}").write_bytes(bytes([2 + export]) + message)
        (corpus / f"{name}_records_{export}").write_bytes(bytes([nth + export]) + found)
    # A few records at a time, since small inputs are quick.
    at, few = 0, b""
    while at < len(found):
        length = int.from_bytes(found[at : at + 4], "little")
        few += found[at : at + 4 + length]
        at += 4 + length
        if len(few) > 1000:
            (corpus / f"{name}_at_{at}").write_bytes(bytes([nth + 240]) + few)
            few = b""
# Its samples of hardware counters are not records.
message = gzip.decompress((here / "../tests/fixtures/gpu/counters.kernspan").read_bytes())
for export in (0, 240):
    (corpus / f"counters_file_{export}").write_bytes(bytes([2 + export]) + message)
print(len(list(corpus.iterdir())), "seeds in", corpus)

corpus = here / "corpus" / "read"
corpus.mkdir(parents=True, exist_ok=True)
for file in sorted((here / "../tests/fixtures/torch").glob("*.pt.trace.json.gz")):
    head, rest = gzip.decompress(file.read_bytes()).split(b'"traceEvents": [', 1)
    events, tail = rest.rsplit(b"\n  ],", 1)
    events = events.split(b",\n  {")
    # A few events at a time, from all over the file, since small inputs are quick.
    for first in range(0, 40):
        few = b",\n  {".join(events[:1] + events[1 + first :: max(1, len(events) // 25)])
        for export in (0, 240):
            document = head + b'"traceEvents": [' + few + b"\n  ]," + tail
            (corpus / f"{file.name.split('.')[0]}_{first}_{export}").write_bytes(bytes([export]) + document)
print(len(list(corpus.iterdir())), "seeds in", corpus)
