"""A streaming client that writes down every token, and the requests whose answers are compared."""
import asyncio
import json
import random
import socket


class Answer:
    """What a client had of one request, choice by choice."""

    def __init__(self):
        self.status = None
        self.worker = None
        self.tokens, self.texts, self.logprobs, self.finish = {}, {}, {}, {}
        self.error = None
        self.told_to_resume = None  # by the event that ended it early
        self.done = False  # [DONE] was read
        self.resume = {}   # seed, created, model_id
        self.times = []    # of each event, on the loop's clock

    def count(self):
        return sum(len(t) for t in self.tokens.values())

    def result(self):
        """What must be equal to the undisturbed run."""
        return (self.tokens, self.texts, self.logprobs, self.finish)

    def take(self, event):
        self.times.append(asyncio.get_running_loop().time())
        if "error" in event:
            self.error = event["error"]
            self.told_to_resume = event.get("resume")
            return
        for key in ("seed", "created", "model_id"):
            if key in event:
                self.resume.setdefault(key, event[key])
        for choice in event.get("choices", []):
            i = choice["index"]
            self.tokens.setdefault(i, []).extend(choice.get("token_ids") or [])
            self.texts[i] = self.texts.get(i, "") + choice.get("text", "")
            if choice.get("logprobs"):
                self.logprobs.setdefault(i, []).extend(choice["logprobs"]["token_logprobs"])
            if choice.get("finish_reason"):
                self.finish[i] = choice["finish_reason"]


async def ask(port, body, on_event=None, answer=None, bytes_per_s=None):
    """Streams one completion to its end; raises nothing: what went wrong stands in the answer. `port` may be a
    (host, port, key) elsewhere than on loopback."""
    host, port, key = port if isinstance(port, tuple) else ("127.0.0.1", port, None)
    credential = b"" if key is None else b"Authorization: Bearer %s\r\n" % key.encode()
    answer = answer or Answer()
    payload = json.dumps({**body, "stream": True, "return_token_ids": True}).encode()
    writer = None
    try:
        if bytes_per_s is None:
            reader, writer = await asyncio.open_connection(host, port)
        else:  # little may wait in between, so that being slow is felt
            narrow = socket.socket()
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            narrow.setblocking(False)
            await asyncio.get_running_loop().sock_connect(narrow, (host, port))
            reader, writer = await asyncio.open_connection(sock=narrow, limit=64)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Connection: close\r\n%sContent-Length: %d\r\n\r\n" % (credential, len(payload)) + payload)
        await writer.drain()
        if bytes_per_s is not None:
            while await reader.read(1):
                await asyncio.sleep(1 / bytes_per_s)
            return answer
        answer.status = int((await reader.readline()).split()[1])
        chunked = False
        while (line := await reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            if name.lower() == "x-quire-worker":
                answer.worker = value.strip()
            chunked |= name.lower() == "transfer-encoding"
        if not chunked:
            answer.error = (json.loads(await reader.read()) or {}).get("error")
            return answer
        rest = b""
        while True:
            size = int((await reader.readline()).strip() or b"0", 16)
            if size == 0:
                return answer
            rest += await reader.readexactly(size)
            await reader.readexactly(2)
            while b"\n\n" in rest:
                event, rest = rest.split(b"\n\n", 1)
                for line in event.split(b"\n"):
                    if line == b"data: [DONE]":
                        answer.done = True
                    elif line.startswith(b"data: "):
                        answer.take(json.loads(line[6:]))
                if on_event is not None:
                    on_event(answer)
    except (OSError, ValueError, IndexError, asyncio.IncompleteReadError) as error:
        answer.error = answer.error or {"message": f"connection: {type(error).__name__} {error}"}
    finally:
        if writer is not None:
            writer.close()
    return answer


OPENINGS = ["Once upon a time", "The little dog", "In a house by the sea", "A boy and his cat", "One day in spring",
            "The king of the forest", "There was a girl named Lily who", "Tom had a red ball"]


def requests(count, seed, max_tokens=48):
    """Requests of every kind whose state must survive: penalties, logprobs, stop strings, several choices."""
    draw = random.Random(seed)
    made = []
    for i in range(count):
        body = {"model": "demo", "prompt": draw.choice(OPENINGS) + " " * (i % 3), "seed": draw.getrandbits(40),
                "temperature": draw.choice([0, 0.7, 1.0]), "max_tokens": max_tokens, "ignore_eos": True}
        if i % 4 == 1:
            body |= {"n": 2, "temperature": 0.9}
        if i % 4 == 2:
            body |= {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.2, "min_tokens": 4}
        if i % 3 == 0:
            body |= {"logprobs": 2}
        if i % 5 == 4:
            body |= {"stop": ["the end of it all", "said the very"]}
        made.append(body)
    return made


def constrained(count, seed, max_tokens=160):
    """The same with constraints of every kind: what a worker must find again at any token."""
    pet = {"type": "object", "required": ["kind", "name", "tags"], "additionalProperties": False,
           "x-guidance": {"whitespace_flexible": False},
           "properties": {"kind": {"enum": ["cat", "dog"]}, "name": {"type": "string", "minLength": 10, "maxLength": 20},
                          "tags": {"type": "array", "minItems": 4, "maxItems": 8, "items": {"type": "integer", "maximum": 9999}}}}
    forms = [{"response_format": {"type": "json_schema", "json_schema": {"name": "pet", "schema": pet}}},
             {"response_format": {"type": "json_object"}}, {"structured_outputs": {"regex": "([a-z]{2,5} ){6,10}end"}},
             {"grammar": 'root ::= item{6,10}\nitem ::= [a-c] "-" [0-9]{1,4} "\\n"'},
             {"structured_outputs": {"choice": ["yes " * 20, "no " * 20]}},
             {"structured_outputs": {"structural_tag": json.dumps({"format": {"type": "sequence", "elements": [
                 {"type": "const_string", "value": "<pet>"}, {"type": "json_schema", "json_schema": pet}]}})}}]
    return [{**body, **forms[i % len(forms)]} for i, body in enumerate(requests(count, seed, max_tokens))]
