"""A way to an S3 service that refuses what a test says, and knows what was stored."""
import email.utils
import http.client
import http.server
import threading
import time
import urllib.parse

WRITING = ("PUT", "POST", "DELETE")
STATUS = {"NoSuchBucket": 404, "SlowDown": 503}  # others: 403


class S3Gateway:
    """Hands each request on to `url`, with the headers that were signed, unless `refuses(method)` names an error."""

    def __init__(self, url):
        endpoint = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["endpoint"][0]
        self.service = urllib.parse.urlsplit(endpoint).netloc
        self.refuses = lambda method: None
        self.clock_ahead = 0  # seconds, of what a refusal says
        self.answers = []  # (method, path, status)
        gateway = self

        class Handler(_Handler):
            def answer(self):
                gateway._answer(self)

        for method in ("GET", "HEAD", *WRITING):
            setattr(Handler, f"do_{method}", Handler.answer)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = url.replace(endpoint, f"http://127.0.0.1:{self.server.server_port}")

    def stored(self):
        """The requests that have changed the store."""
        return [(method, path) for method, path, status in list(self.answers) if method in WRITING and status < 300]

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def _answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        error = self.refuses(request.command)
        if error:
            status, headers = STATUS.get(error, 403), [("Content-Type", "application/xml")]
            said = f"<Error><Code>{error}</Code><Message>as the test says</Message></Error>".encode()
        else:
            status, headers, said = self._hand_on(request, body)
        self.answers.append((request.command, request.path, status))
        request.send_response_only(status)
        if error:
            headers.append(("Date", email.utils.formatdate(time.time() + self.clock_ahead, usegmt=True)))
            headers.append(("Content-Length", str(len(said))))
        for name, value in headers:
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(said)

    def _hand_on(self, request, body):
        connection = http.client.HTTPConnection(self.service, timeout=60)
        try:
            connection.putrequest(request.command, request.path, skip_host=True, skip_accept_encoding=True)
            for name, value in request.headers.items():
                connection.putheader(name, value)  # the host, too: it is signed
            connection.endheaders(body)
            answer = connection.getresponse()
            said = answer.read()
        except OSError:
            return 503, [("Content-Length", "0")], b""
        finally:
            connection.close()
        ours = ("content-length", "connection", "transfer-encoding")
        headers = [(name, value) for name, value in answer.getheaders() if name.lower() not in ours]
        length = answer.getheader("Content-Length", "0") if request.command == "HEAD" else str(len(said))
        return answer.status, [*headers, *([] if answer.status == 204 else [("Content-Length", length)])], said


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass
