"""TLS 1.3 with what Python's own module cannot send: KeyUpdates, by OpenSSL itself."""
import ctypes
import ctypes.util
import socket

UPDATE_NOT_REQUESTED, UPDATE_REQUESTED = 0, 1


class Connection:
    def __init__(self, port, limit_s=30):
        self.library = ctypes.CDLL(ctypes.util.find_library("ssl"))
        for name in ("TLS_client_method", "SSL_CTX_new", "SSL_new"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=limit_s)
        self.socket.setblocking(True)
        method = ctypes.c_void_p(self.library.TLS_client_method())
        self.context = ctypes.c_void_p(self.library.SSL_CTX_new(method))
        self.session = ctypes.c_void_p(self.library.SSL_new(self.context))
        self.library.SSL_set_fd(self.session, self.socket.fileno())
        if self.library.SSL_connect(self.session) != 1:
            raise OSError("no TLS connection")

    def update_key(self, kind=UPDATE_NOT_REQUESTED):
        """False: the server closed the connection."""
        self.library.SSL_key_update(self.session, kind)
        return self.library.SSL_do_handshake(self.session) == 1

    def close(self):
        self.library.SSL_free(self.session)
        self.library.SSL_CTX_free(self.context)
        self.socket.close()
