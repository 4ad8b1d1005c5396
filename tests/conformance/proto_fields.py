"""Holds our Open Inference Protocol to a client's copy: where both have a message, an enum value or a call of the same
name, number and type are the same; what the client lacks is listed by its caller."""
import pathlib
import subprocess
import tempfile

from google.protobuf import descriptor_pb2

ROOT = pathlib.Path(__file__).resolve().parents[2]


def fields_of(message, prefix=""):
    """Every field of a message's descriptor: (path) -> (number, type, repeated, type name)."""
    found = {}
    for field in message.field:
        found[f"{prefix}{message.name}.{field.name}"] = (field.number, field.type, field.label == field.LABEL_REPEATED,
                                                         field.type_name)
    for nested in message.nested_type:
        found |= fields_of(nested, f"{prefix}{message.name}.")
    return found


def facts_of(files):
    facts = {}
    for file in files:
        assert file.package == "inference", file.package
        for message in file.message_type:
            facts |= fields_of(message)
        for enum in file.enum_type:
            facts |= {f"{enum.name}.{v.name}": v.number for v in enum.value}
        for service in file.service:
            facts |= {f"{service.name}/{m.name}": (m.input_type, m.output_type, m.client_streaming, m.server_streaming)
                      for m in service.method}
    return facts


def hold_to(*modules, lacks=()):
    with tempfile.NamedTemporaryFile(suffix=".pb") as out:
        subprocess.run(["protoc", "-I", str(ROOT / "proto"), f"--descriptor_set_out={out.name}",
                        "inference/open_inference.proto"], check=True)
        ours = facts_of(descriptor_pb2.FileDescriptorSet.FromString(pathlib.Path(out.name).read_bytes()).file)
    files = []
    for module in modules:
        files.append(descriptor_pb2.FileDescriptorProto())
        module.DESCRIPTOR.CopyToProto(files[-1])
    theirs = facts_of(files)
    for name, fact in ours.items():
        if name in theirs:
            assert theirs[name] == fact, (name, fact, theirs[name])
        else:
            assert name.startswith(tuple(lacks)), f"{name} is not in the client's copy"
