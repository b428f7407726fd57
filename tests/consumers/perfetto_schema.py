"""Decodes a trace with Perfetto's own schema, newer than the trace processor that can be installed.

    perfetto_schema.py TRACE

Fails if a message has a field that the schema does not know. Prints a line of JSON for each launch of a kernel, as
Perfetto's tab GPU Compute would see it, and one with the GPUs.
"""

import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema

# Extensions of `InternedData` in `gpu_interned_data.proto`, which the package leaves out.
COMPUTE_KERNELS, COMPUTE_ARG_NAMES = 1000, 1001


def check(message, extensions=()):
    for field in UnknownFieldSet(message):
        if field.field_number not in extensions:
            sys.exit(f"{message.DESCRIPTOR.full_name} has no field {field.field_number}")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if field.label == field.LABEL_REPEATED else [value]:
                check(inner, (COMPUTE_KERNELS, COMPUTE_ARG_NAMES) if field.name == "interned_data" else ())


def extension(interned, number, kind):
    for field in UnknownFieldSet(interned):
        if field.field_number == number:
            message = kind.FromString(field.data)
            check(message)
            yield message


with open(sys.argv[1], "rb") as file:
    trace = schema.Trace.FromString(file.read())
check(trace)
names = {}
for packet in trace.packet:
    sequence = names.setdefault(packet.trusted_packet_sequence_id, {"kernel": {}, "argument": {}, "stage": {}})
    interned = packet.interned_data
    for stage in interned.gpu_specifications:
        sequence["stage"][stage.iid] = stage.name
    for kernel in extension(interned, COMPUTE_KERNELS, schema.InternedComputeKernel):
        sequence["kernel"][kernel.iid] = kernel
    for argument in extension(interned, COMPUTE_ARG_NAMES, schema.InternedComputeArgName):
        sequence["argument"][argument.iid] = argument.name
    if packet.HasField("gpu_info"):
        print(json.dumps({"gpus": [[gpu.name, gpu.vendor, gpu.architecture] for gpu in packet.gpu_info.gpus]}))
    if packet.HasField("gpu_render_stage_event"):
        event = packet.gpu_render_stage_event
        kernel = sequence["kernel"][event.kernel_iid]
        size = lambda dim: [dim.x, dim.y, dim.z]
        print(
            json.dumps(
                {
                    "kernel": kernel.demangled_name or kernel.name,
                    "stage": sequence["stage"][event.stage_iid],
                    "nanos": event.duration,
                    "grid": size(event.launch.grid_size),
                    "block": size(event.launch.workgroup_size),
                    "arguments": sorted(sequence["argument"][argument.name_iid] for argument in kernel.args),
                }
            )
        )
