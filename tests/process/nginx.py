"""nginx, on loopback and in the foreground, with what it writes in a folder of its own."""
import pathlib
import shutil

from harness import ROOT, Process, expect

UNPACKED = ROOT / ".cache" / "debian"  # where ./dev unpacks nginx
TOP = """
daemon off;
master_process off;
pid {folder}/nginx.pid;
error_log stderr;
{modules}
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  {http}
}}
{rest}
"""


def stream_module():
    """The line that loads what `stream` needs."""
    modules = [at / "usr" / "lib" / "nginx" / "modules" / "ngx_stream_module.so" for at in (pathlib.Path("/"), UNPACKED)]
    found = [module for module in modules if module.exists()]
    expect(found, "nginx's module for streams is not here: ./dev test unpacks it")
    return f"load_module {found[0]};"


def nginx(folder, http, modules="", rest=""):
    """The started process; `http` is the inside of its http block, `rest` follows that block."""
    program = shutil.which("nginx") or UNPACKED / "usr" / "sbin" / "nginx"
    expect(pathlib.Path(program).exists(), "nginx is not here: ./dev test unpacks it")
    config = pathlib.Path(folder) / "nginx.conf"
    config.write_text(TOP.format(folder=folder, modules=modules, http=http, rest=rest))
    return Process([program, "-p", folder, "-c", config])
