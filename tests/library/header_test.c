/* quire.h from C: every function, right arguments and wrong ones. Usage: header_test MODEL */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library/quire.h"

#define EXPECT(condition)                                                            \
  do {                                                                               \
    if (!(condition)) {                                                              \
      fprintf(stderr, "%s:%d: %s; last error: %s\n", __FILE__, __LINE__, #condition, \
              quire_last_error());                                                   \
      exit(1);                                                                       \
    }                                                                                \
  } while (0)
#define REFUSED(call, status, words)                   \
  do {                                                 \
    EXPECT((call) == (status));                        \
    EXPECT(strstr(quire_last_error(), words) != NULL); \
    EXPECT(strchr(quire_last_error(), '\n') == NULL);  \
  } while (0)

/* The events of one request, joined, until its last one. */
static char* Wait(uint64_t engine, uint64_t request) {
  char* all = calloc(1, 1);
  char done[64], error[64];
  snprintf(done, sizeof(done), "{\"request\":%" PRIu64 ",\"event\":\"done\"", request);
  snprintf(error, sizeof(error), "{\"request\":%" PRIu64 ",\"event\":\"error\"", request);
  while (strstr(all, done) == NULL && strstr(all, error) == NULL) {
    char* events = NULL;
    EXPECT(quire_engine_poll(engine, 60000, &events) == QUIRE_OK);
    all = realloc(all, strlen(all) + strlen(events) + 1);
    strcat(all, events);
    quire_free(events);
  }
  return all;
}

static void BadArguments(uint64_t engine) {
  char* text = NULL;
  uint64_t number = 0;
  REFUSED(quire_engine_create(NULL, &number), QUIRE_INVALID, "options: is NULL");
  REFUSED(quire_engine_create("{}", NULL), QUIRE_INVALID, "engine: is NULL");
  REFUSED(quire_engine_create("{", &number), QUIRE_INVALID, "options");
  REFUSED(quire_engine_create("[]", &number), QUIRE_INVALID, "must be a JSON object");
  REFUSED(quire_engine_create("{}", &number), QUIRE_INVALID, "model: is missing");
  REFUSED(quire_engine_create("{\"model\":\"m\",\"max_model_length\":1}", &number), QUIRE_INVALID,
          "max-model-len");
  REFUSED(quire_engine_create("{\"model\":\"m\",\"listen\":\"x\"}", &number), QUIRE_INVALID,
          "listen: has no meaning here");
  REFUSED(quire_engine_create("{\"model\":\"m\",\"device\":\"cuda\"}", &number), QUIRE_INVALID,
          "device");
  REFUSED(quire_engine_create("{\"model\":\"/no/such/model\"}", &number), QUIRE_NO_MODEL,
          "/no/such/model");
  EXPECT(number == 0);
  REFUSED(quire_engine_submit(engine, NULL, 0, &number), QUIRE_INVALID, "request: is NULL");
  REFUSED(quire_engine_submit(engine, "{\"prompt\":\"a\"}", 0, NULL), QUIRE_INVALID, "number");
  REFUSED(quire_engine_submit(engine, "{\"prompt\":\"a\"}", 4, &number), QUIRE_INVALID, "flags");
  REFUSED(quire_engine_submit(engine, "{", 0, &number), QUIRE_INVALID, "");
  REFUSED(quire_engine_submit(engine, "{}", 0, &number), QUIRE_INVALID, "prompt: is missing");
  REFUSED(quire_engine_submit(engine, "{\"prompt\":[\"a\",\"b\"]}", 0, &number), QUIRE_INVALID,
          "one prompt");
  REFUSED(quire_engine_submit(engine, "{\"prompt\":\"a\",\"temprature\":1}", 0, &number),
          QUIRE_INVALID, "temprature");
  REFUSED(quire_engine_submit(engine, "{\"prompt\":\"a\",\"stream\":true}", 0, &number),
          QUIRE_INVALID, "QUIRE_STREAM");
  REFUSED(quire_engine_submit(engine, "{\"prompt\":\"a\",\"top_p\":7}", 0, &number), QUIRE_INVALID,
          "top_p");
  EXPECT(number == 0);
  REFUSED(quire_engine_poll(engine, 0, NULL), QUIRE_INVALID, "events");
  REFUSED(quire_engine_info(engine, NULL), QUIRE_INVALID, "info");
  REFUSED(quire_engine_tokenize(engine, "{\"prompt\":\"a\"}", NULL), QUIRE_INVALID, "ids");
  REFUSED(quire_engine_tokenize(engine, "{\"text\":\"a\"}", &text), QUIRE_INVALID, "");
  REFUSED(quire_engine_render(engine, "{\"prompt\":\"a\"}", &text), QUIRE_INVALID, "messages");
  REFUSED(quire_engine_detokenize(engine, NULL, 1, 0, &text), QUIRE_INVALID, "ids");
  const int32_t negative = -1;
  REFUSED(quire_engine_detokenize(engine, &negative, 1, 0, &text), QUIRE_INVALID, "negative");
  EXPECT(text == NULL);
  char* large = malloc(QUIRE_MAX_INPUT_BYTES + 2);
  memset(large, ' ', QUIRE_MAX_INPUT_BYTES + 1);
  large[QUIRE_MAX_INPUT_BYTES + 1] = '\0';
  REFUSED(quire_engine_submit(engine, large, 0, &number), QUIRE_INVALID, "more than 33554432");
  large[QUIRE_MAX_INPUT_BYTES] = '\0';
  EXPECT(quire_engine_submit(engine, large, 0, &number) == QUIRE_INVALID);
  EXPECT(strstr(quire_last_error(), "more than 33554432") == NULL);
  free(large);
  REFUSED(quire_engine_poll(12345, 0, &text), QUIRE_GONE, "no such engine");
  REFUSED(quire_engine_destroy(0), QUIRE_GONE, "no such engine");
}

static void Texts(uint64_t engine) {
  char *ids = NULL, *text = NULL, *info = NULL;
  EXPECT(quire_engine_info(engine, &info) == QUIRE_OK && strstr(info, "\"vocab_size\":") != NULL);
  EXPECT(quire_engine_tokenize(engine, "{\"prompt\":\"Once upon a time\"}", &ids) == QUIRE_OK);
  int32_t numbers[64];
  uint64_t count = 0;
  for (char* at = ids + 1; *at != '\0' && *at != ']' && count < 64;) {
    numbers[count++] = (int32_t)strtol(at, &at, 10);
    if (*at == ',') ++at;
  }
  EXPECT(count > 0);
  EXPECT(quire_engine_detokenize(engine, numbers, count, 1, &text) == QUIRE_OK);
  EXPECT(strstr(text, "Once upon a time") != NULL);
  quire_free(text);
  EXPECT(quire_engine_render(engine, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}",
                             &text) == QUIRE_OK);
  EXPECT(strstr(text, "Hello") != NULL);
  quire_free(text);
  quire_free(ids);
  quire_free(info);
}

static void Requests(uint64_t engine) {
  uint64_t one = 0, two = 0;
  EXPECT(quire_engine_submit(engine, "{\"prompt\":\"Once\",\"max_tokens\":4}", 0, &one) ==
         QUIRE_OK);
  EXPECT(quire_engine_submit(engine,
                             "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                             "\"max_tokens\":4,\"logprobs\":true}",
                             QUIRE_STREAM, &two) == QUIRE_OK);
  EXPECT(one != 0 && two != 0 && one != two);
  char* events = Wait(engine, two);
  EXPECT(strstr(events, "\"event\":\"start\"") != NULL);
  EXPECT(strstr(events, "\"event\":\"delta\"") != NULL);
  EXPECT(strstr(events, "\"logprobs\":[{") != NULL);
  EXPECT(strstr(events, "\"event\":\"end\"") != NULL);
  free(events);
  EXPECT(quire_engine_submit(engine,
                             "{\"prompt\":\"Once\",\"max_tokens\":1500,\"ignore_eos\":true}",
                             QUIRE_STREAM, &one) == QUIRE_OK);
  EXPECT(quire_engine_cancel(engine, one) == QUIRE_OK);
  EXPECT(quire_engine_cancel(engine, 999999) == QUIRE_OK);
  events = Wait(engine, one);
  EXPECT(strstr(events, "\"code\":\"cancelled\"") != NULL);
  free(events);
  EXPECT(quire_engine_poll(engine, 0, &events) == QUIRE_OK);
  quire_free(events);
}

/* At the limit every request is taken; one more is refused until an event has been taken. */
static void Limit(uint64_t engine) {
  uint64_t number = 0;
  for (int i = 0; i < QUIRE_MAX_REQUESTS; ++i) {
    EXPECT(quire_engine_submit(engine, "{\"prompt\":[5],\"max_tokens\":400,\"ignore_eos\":true}", 0,
                               &number) == QUIRE_OK);
  }
  REFUSED(quire_engine_submit(engine, "{\"prompt\":[5]}", 0, &number), QUIRE_FULL, "4096");
}

/* The same for bytes: four requests fill them to the last one. */
static void LimitOfBytes(uint64_t engine) {
  const char request[] = "{\"prompt\":[5],\"max_tokens\":1500,\"ignore_eos\":true}";
  const size_t size = QUIRE_MAX_REQUESTS_BYTES / 4;
  char* large = malloc(size + 1);
  memset(large, ' ', size);
  large[size] = '\0';
  memcpy(large, request, sizeof(request) - 1);
  uint64_t numbers[4], more = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT(quire_engine_submit(engine, large, QUIRE_STREAM, &numbers[i]) == QUIRE_OK);
  }
  REFUSED(quire_engine_submit(engine, "{\"prompt\":[5]}", 0, &more), QUIRE_FULL, "67108864 bytes");
  for (int i = 0; i < 4; ++i) EXPECT(quire_engine_cancel(engine, numbers[i]) == QUIRE_OK);
  free(Wait(engine, numbers[3]));
  EXPECT(quire_engine_submit(engine, "{\"prompt\":[5],\"max_tokens\":1}", 0, &more) == QUIRE_OK);
  free(Wait(engine, more));
  free(large);
}

/* A cancel that meets the end of its request adds no second last event, and frees nothing twice. */
static void CancelAtTheEnd(uint64_t engine) {
  for (int turn = 0; turn < 200; ++turn) {
    uint64_t number = 0;
    EXPECT(quire_engine_submit(engine, "{\"prompt\":[2000000000]}", 0, &number) == QUIRE_OK);
    if (turn % 2 == 0) usleep(50);
    EXPECT(quire_engine_cancel(engine, number) == QUIRE_OK);
    char* events = Wait(engine, number);
    char* first = strstr(events, "\"event\":\"error\"");
    EXPECT(first != NULL && strstr(first + 1, "\"event\":\"error\"") == NULL);
    free(events);
    EXPECT(quire_engine_poll(engine, 1, &events) == QUIRE_OK && strcmp(events, "[]") == 0);
    quire_free(events);
  }
}

static void* PollForEver(void* engine) {
  char* events = NULL;
  quire_status status;
  while ((status = quire_engine_poll(*(uint64_t*)engine, -1, &events)) == QUIRE_OK) {
    quire_free(events);
  }
  return status == QUIRE_GONE ? engine : NULL;
}

int main(int argc, char** argv) {
  EXPECT(argc == 2);
  EXPECT(quire_abi_version() == QUIRE_ABI_VERSION);
  EXPECT(strchr(quire_version(), '.') != NULL);
  char options[4096];
  snprintf(options, sizeof(options), "{\"model\":\"%s\",\"threads\":1,\"log_level\":\"off\"}",
           argv[1]);
  uint64_t engine = 0;
  EXPECT(quire_engine_create(options, &engine) == QUIRE_OK && engine != 0);
  EXPECT(quire_last_error()[0] == '\0');
  BadArguments(engine);
  Texts(engine);
  Requests(engine);
  const pid_t child = fork();
  if (child == 0) {
    char* events = NULL;
    if (quire_engine_poll(engine, 1000, &events) != QUIRE_GONE) _exit(1);
    if (quire_engine_destroy(engine) != QUIRE_GONE) _exit(2);
    _exit(0);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  CancelAtTheEnd(engine);
  LimitOfBytes(engine);
  Limit(engine);
  /* Destroyed while thousands of requests run and a thread waits. */
  pthread_t thread;
  EXPECT(pthread_create(&thread, NULL, PollForEver, &engine) == 0);
  usleep(50000);
  EXPECT(quire_engine_destroy(engine) == QUIRE_OK);
  void* ended = NULL;
  EXPECT(pthread_join(thread, &ended) == 0 && ended == &engine);
  REFUSED(quire_engine_destroy(engine), QUIRE_GONE, "no such engine");
  uint64_t number = 0;
  REFUSED(quire_engine_submit(engine, "{\"prompt\":\"a\"}", 0, &number), QUIRE_GONE,
          "no such engine");
  puts("ok");
  return 0;
}
