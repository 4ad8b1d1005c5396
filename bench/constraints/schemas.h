// Schemas as clients send them, for the benches of constraints.
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

// The same in a list that ends only behind many of them, so that a stream is never complete.
inline constexpr const char* kEndlessHead = R"({"type":"array","minItems":100000,"items":)";
inline constexpr const char* kEndlessTail = "}";

}  // namespace quire::bench
