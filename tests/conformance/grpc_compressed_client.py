"""The cases of gRPC's interoperability tests in which a client compresses what it says, by Python's grpcio:
TARGET CASE [AUTHORITY'S FILE, SERVER'S NAME].

The first message of each is the probe: it came uncompressed and says otherwise, which the server must refuse. grpcio compresses
the messages of a call whose compression makes them smaller: random bytes go as they are.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

HERE = pathlib.Path(__file__).resolve().parent
LIMIT_S = 30
REQUEST_BYTES, RESPONSE_BYTES = 271828, 314159
STREAMED_BYTES = (27182, 45904)


def messages():
    with tempfile.TemporaryDirectory() as folder:
        described = pathlib.Path(folder) / "testing.pb"
        subprocess.run(["protoc", "-I", HERE, f"--descriptor_set_out={described}", "grpc_interop/testing.proto"], check=True)
        files = descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"grpc.testing.{name}"))


def said(message_of, name, body, compressed):
    request = message_of(name)(payload={"body": body}, expect_compressed={"value": compressed})
    if name == "SimpleRequest":
        request.response_size = RESPONSE_BYTES
    return request


def refused(call):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT, error
    else:
        raise AssertionError("the server took an uncompressed message for a compressed one")


def client_compressed_unary(channel, message_of):
    call = channel.unary_unary("/grpc.testing.TestService/UnaryCall", lambda m: m.SerializeToString(),
                               message_of("SimpleResponse").FromString)
    zeros = bytes(REQUEST_BYTES)
    refused(lambda: call(said(message_of, "SimpleRequest", zeros, True), timeout=LIMIT_S))
    for compression in (grpc.Compression.Gzip, grpc.Compression.Deflate, grpc.Compression.NoCompression):
        request = said(message_of, "SimpleRequest", zeros, compression != grpc.Compression.NoCompression)
        answer = call(request, timeout=LIMIT_S, compression=compression)
        assert len(answer.payload.body) == RESPONSE_BYTES, len(answer.payload.body)


def client_compressed_streaming(channel, message_of):
    call = channel.stream_unary("/grpc.testing.TestService/StreamingInputCall", lambda m: m.SerializeToString(),
                                message_of("StreamingInputCallResponse").FromString)
    name = "StreamingInputCallRequest"
    probe = said(message_of, name, bytes(STREAMED_BYTES[0]), True)
    refused(lambda: call(iter([probe]), timeout=LIMIT_S))
    streamed = [said(message_of, name, bytes(STREAMED_BYTES[0]), True),
                said(message_of, name, os.urandom(STREAMED_BYTES[1]), False)]
    answer = call(iter(streamed), timeout=LIMIT_S, compression=grpc.Compression.Gzip)
    assert answer.aggregated_payload_size == sum(STREAMED_BYTES), answer


def channel_to(target, authority=None, name=None):
    if authority is None:
        return grpc.insecure_channel(target)
    credentials = grpc.ssl_channel_credentials(pathlib.Path(authority).read_bytes())
    return grpc.secure_channel(target, credentials, options=[("grpc.ssl_target_name_override", name)])


def main(target, case, *tls):
    cases = {"client_compressed_unary": client_compressed_unary, "client_compressed_streaming": client_compressed_streaming}
    with channel_to(target, *tls) as channel:
        cases[case](channel, messages())


if __name__ == "__main__":
    main(*sys.argv[1:])
