// Schemas as clients send them, and answers under them, for the benches of constraints.
//
// Constants.
#pragma once

namespace quire::bench {

// Objects, arrays, enumerations, patterns, formats, references and alternatives.
inline constexpr const char* kSchemas[] = {
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},)"
    R"("email":{"type":"string","format":"email"}},"required":["name","age"]})",
    R"({"type":"object","properties":{"id":{"type":"string","format":"uuid"},)"
    R"("created":{"type":"string","format":"date-time"},"score":{"type":"number"},)"
    R"("tags":{"type":"array","items":{"type":"string","maxLength":20}}},"required":["id","tags"]})",
    R"({"type":"array","items":{"type":"object","properties":{"x":{"type":"number"},)"
    R"("y":{"type":"number"},"kind":{"enum":["point","line","area"]}},"required":["x","y","kind"],)"
    R"("additionalProperties":false}})",
    R"({"$defs":{"node":{"type":"object","properties":{"value":{"type":"string"},)"
    R"("children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["value"]}},)"
    R"("$ref":"#/$defs/node"})",
    R"({"type":"object","properties":{"city":{"type":"string"},"unit":{"enum":["celsius",)"
    R"("fahrenheit"]},"days":{"type":"integer","minimum":1,"maximum":14}},"required":["city",)"
    R"("unit"],"additionalProperties":false})",
    R"({"type":"object","properties":{"phone":{"type":"string","pattern":"^\\+[0-9]{7,15}$"},)"
    R"("address":{"type":"object","properties":{"street":{"type":"string"},)"
    R"("zip":{"type":"string","pattern":"^[0-9]{5}$"},"country":{"type":"string","minLength":2,)"
    R"("maxLength":2}},"required":["street","zip"]}},"required":["phone","address"]})",
    R"({"anyOf":[{"type":"object","properties":{"ok":{"const":true},"result":{}},)"
    R"("required":["ok","result"]},{"type":"object","properties":{"ok":{"const":false},)"
    R"("error":{"type":"string"}},"required":["ok","error"]}]})",
    R"({"type":"object"})",
};

// Answers as models write them, each under the schema of its number.
struct Instance {
  int schema;
  const char* text;
};
inline constexpr Instance kInstances[] = {
    {0, R"({"name":"Ada Lovelace","age":36,"email":"ada@example.org"})"},
    {0, R"({"name":"Søren Kierkegaard","age":42})"},
    {1, R"({"id":"7d444840-9dc0-11d1-b245-5ffdce74fad2","created":"2026-03-01T12:30:00Z",)"
        R"("score":0.8731,"tags":["physics","history of science","easy"]})"},
    {1, R"({"id":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","tags":[]})"},
    {2, R"([{"x":1.5,"y":-20,"kind":"point"},{"x":100,"y":3e2,"kind":"area"},)"
        R"({"x":0,"y":0.001,"kind":"line"}])"},
    {3, R"({"value":"root","children":[{"value":"left","children":[{"value":"a leaf"},)"
        R"({"value":"another leaf"}]},{"value":"right"}]})"},
    {4, R"({"city":"San Francisco","unit":"fahrenheit","days":7})"},
    {4, R"({"city":"Köln","unit":"celsius"})"},
    {5, R"({"phone":"+493012345678","address":{"street":"Unter den Linden 77","zip":"10117",)"
        R"("country":"DE"}})"},
    {6, R"({"ok":true,"result":{"rows":[[1,"first"],[2,"second"]],"more":false}})"},
    {6, R"({"ok":false,"error":"The table \"orders\" has no column named total."})"},
    {7,
     R"({"title":"How rivers form","summary":"Rain and melting snow run downhill. Small streams)"
     R"( join, cut a bed into the rock and grow into a river.","sections":[{"heading":"Springs",)"
     R"("words":412},{"heading":"Valleys","words":655}],"draft":true,"reviewer":null})"},
};

// The same in a list that ends only behind many of them, so that a stream is never complete.
inline constexpr const char* kEndlessHead = R"({"type":"array","minItems":100000,"items":)";
inline constexpr const char* kEndlessTail = "}";

}  // namespace quire::bench
