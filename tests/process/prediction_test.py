"""Predicted outputs on real processes: with and without a drafter, whole and streamed, right and wrong."""
import json

from harness import Server, expect

NGRAM = '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 8}'
CHAT = "/v1/chat/completions"
ASK = {"model": "demo", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 60, "ignore_eos": True,
       "temperature": 0}


def asked(server, **more):
    status, answer = server.post(CHAT, {**ASK, **more})
    expect(status == 200, answer)
    return answer


def predicting(content):
    return {"type": "content", "content": content}


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def details_of(answer):
    return answer["usage"].get("completion_tokens_details")


def test_a_prediction_changes_no_answer_and_the_usage_shows_its_tokens():
    with Server(f"--speculative-config={NGRAM}") as server:
        for sampling in ({"temperature": 0}, {"temperature": 1.0, "seed": 5}):
            plain = asked(server, **sampling)
            expect(details_of(plain) is None, plain["usage"])
            text = text_of(plain)
            right = asked(server, **sampling, prediction=predicting(text))
            expect(text_of(right) == text, f"{text_of(right)!r} is not {text!r}")
            expect(right["usage"]["completion_tokens"] == 60, right["usage"])
            shown = details_of(right)
            expect(30 <= shown["accepted_prediction_tokens"] < 60, shown)
            wrong = asked(server, **sampling, prediction=predicting(text[:8] + " <|im_end|> 17 zebras"))
            expect(text_of(wrong) == text, f"{text_of(wrong)!r} is not {text!r}")
            expect(details_of(wrong)["rejected_prediction_tokens"] > 0, details_of(wrong))
        two = asked(server, temperature=1.0, seed=5, n=2, prediction=predicting(text))
        expect(text_of(two) == text, "the first of two choices is the same")
        events = list(server.stream(CHAT, {**ASK, "prediction": predicting([{"type": "text", "text": text}]),
                                           "stream_options": {"include_usage": True}}))
        last = json.loads(events[-2])
        expect(last["choices"] == [] and "accepted_prediction_tokens" in details_of(last), last)


def test_without_a_drafter_it_is_taken_and_has_no_effect():
    with Server() as server:
        plain = asked(server)
        told = asked(server, prediction=predicting(text_of(plain)))
        expect(text_of(told) == text_of(plain), told)
        shown = details_of(told)
        expect(shown == {"reasoning_tokens": 0, "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}, shown)
        for wrong, field in (("text", "prediction"), ({"type": "content"}, "prediction.content"),
                             (predicting([{"type": "image_url"}]), "prediction.content")):
            status, refused = server.post(CHAT, {**ASK, "prediction": wrong})
            expect(status == 400 and refused["error"]["param"] == field, refused)
            expect("\n" not in refused["error"]["message"], refused)
