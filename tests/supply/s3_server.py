"""moto's S3 server, with a bucket of models. Run by the Python of tests/supply/client.py: prints "port N", ends with its input."""
import pathlib
import sys

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1", aws_access_key_id="an-id",
                  aws_secret_access_key="a-secret", config=Config(s3={"addressing_style": "path"}))
s3.create_bucket(Bucket="models")
for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
    if path.is_file():
        s3.put_object(Bucket="models", Key=str(path.relative_to(sys.argv[1])), Body=path.read_bytes())
print(f"port {port}", flush=True)
sys.stdin.read()
server.stop()
