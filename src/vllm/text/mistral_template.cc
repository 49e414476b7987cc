#include "vllm/text/mistral_template.h"

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "base/strings.h"

namespace vllm::text {
namespace {

namespace json = boost::json;

// One template for all versions; `version` is set in front of it. What they have in common: turns
// of one role become one, with an empty line between their texts.
//
//   3   the system's words stand in the last turn of the user, tools in front of it; calls are a
//       list; results are JSON
//   7   the system has turns of its own; a result has its call's id in front
//   11  each call is a name, an id and arguments; results come in the order of the calls
//   13  tools stand in front of the first turn; calls and results have no ids
//   15  settings stand behind the tools; parts of a text follow each other without a gap
constexpr std::string_view kTemplate = R"jinja(
{%- macro words(content) -%}
  {%- if content is string -%}
    {{- content -}}
  {%- elif content -%}
    {%- set so_far = namespace(text='') -%}
    {%- for part in content -%}
      {%- if part.type != 'text' -%}
        {{- raise_exception('only text can be shown to this model here') -}}
      {%- endif -%}
      {%- if part.text -%}
        {%- set so_far.text = so_far.text + ('\n\n' if so_far.text and version < 15 else '')
            + part.text -%}
      {%- endif -%}
    {%- endfor -%}
    {{- so_far.text -}}
  {%- endif -%}
{%- endmacro -%}

{%- macro check_id(id) -%}
  {%- if version >= 13 -%}
    {%- if not id or id == 'null' -%}
      {{- raise_exception('each tool call, and each result, needs an id') -}}
    {%- endif -%}
  {%- else -%}
    {%- set seen = namespace(letters=0) -%}
    {%- for letter in id or '' -%}
      {%- if letter in 'abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789' -%}
        {%- set seen.letters = seen.letters + 1 -%}
      {%- endif -%}
    {%- endfor -%}
    {%- if seen.letters != 9 or id|length != 9 -%}
      {{- raise_exception('the ids of tool calls, and of their results, must be nine letters or digits') -}}
    {%- endif -%}
  {%- endif -%}
{%- endmacro -%}

{%- macro arguments(call) -%}
  {{- call.function.arguments|tojson if call.function.arguments else '{}' -}}
{%- endmacro -%}

{%- macro user_turn(text, is_first, is_last) -%}
  {%- if tools and (is_first if version >= 13 else is_last) -%}
    {{- '[AVAILABLE_TOOLS][' -}}
    {%- for tool in tools -%}
      {{- ', ' if not loop.first -}}
      {{- {'type': 'function',
           'function': {'name': tool.function.name,
                        'description': tool.function.description or '',
                        'parameters': tool.function.parameters or {}}}|tojson -}}
    {%- endfor -%}
    {{- '][/AVAILABLE_TOOLS]' -}}
  {%- endif -%}
  {%- if is_first and efforts -%}
    {{- '[MODEL_SETTINGS]{"reasoning_effort": ' + (reasoning_effort or effort)|tojson
        + '}[/MODEL_SETTINGS]' -}}
  {%- endif -%}
  {{- '[INST]' -}}
  {%- if is_last and state.system -%}
    {{- state.system + '\n\n' -}}
  {%- endif -%}
  {{- text + '[/INST]' -}}
{%- endmacro -%}

{%- macro calls_of(calls) -%}
  {%- if version < 11 -%}
    {{- '[TOOL_CALLS][' -}}
    {%- for call in calls -%}
      {{- (', ' if not loop.first else '') + '{"name": ' + call.function.name|tojson
          + ', "arguments": ' + arguments(call) + ', "id": ' + call.id|tojson + '}' -}}
    {%- endfor -%}
    {{- ']' -}}
  {%- else -%}
    {%- for call in calls -%}
      {{- '[TOOL_CALLS]' + call.function.name -}}
      {{- '[CALL_ID]' + call.id if version < 13 -}}
      {{- '[ARGS]' + arguments(call) -}}
    {%- endfor -%}
  {%- endif -%}
{%- endmacro -%}

{%- macro result(message) -%}
  {{- '[TOOL_RESULTS]' -}}
  {%- if version < 7 -%}
    {{- '{"content": ' + message.content|tojson + ', "call_id": '
        + message.tool_call_id|tojson + '}' -}}
  {%- else -%}
    {{- message.tool_call_id + '[TOOL_CONTENT]' if version < 13 -}}
    {{- words(message.content) -}}
  {%- endif -%}
  {{- '[/TOOL_RESULTS]' -}}
{%- endmacro -%}

{%- set after = {'system': ['system', 'user', 'assistant'], 'user': ['user', 'assistant', 'system'],
                 'assistant': ['assistant', 'user', 'tool'], 'tool': ['tool', 'assistant', 'user']} -%}
{%- set state = namespace(first=-1, last=-1, system='', turn='', calls=[], due=[],
                          results=[]) -%}
{%- for message in messages -%}
  {%- if message.role not in after -%}
    {{- raise_exception('only the roles system, user, assistant and tool are known to this model') -}}
  {%- endif -%}
  {%- if not loop.first and message.role not in after[loop.previtem.role] -%}
    {{- raise_exception("a message with role '" + message.role + "' cannot follow one with role '"
                        + loop.previtem.role + "'") -}}
  {%- endif -%}
  {%- if message.role == 'user' -%}
    {%- if loop.first or loop.previtem.role != 'user' -%}
      {%- set state.last = loop.index0 -%}
    {%- endif -%}
    {%- set state.first = loop.index0 if state.first < 0 else state.first -%}
  {%- elif message.role == 'system' and version < 7 -%}
    {%- set text = words(message.content) -%}
    {%- set state.system = state.system + ('\n\n' if state.system and text else '') + text -%}
  {%- endif -%}
{%- endfor -%}
{%- if messages[0].role in ['assistant', 'tool'] and messages|length == 1 -%}
  {{- raise_exception('a conversation must begin with a message of the user or the system') -}}
{%- endif -%}
{%- if messages|length > 1 and messages[-1].role == 'assistant' and add_generation_prompt -%}
  {{- raise_exception('the last message must be of the user or a tool, or be continued '
                      '(continue_final_message)') -}}
{%- endif -%}

{%- if reasoning_effort and reasoning_effort not in efforts -%}
  {{- raise_exception('reasoning_effort must be one of ' + efforts|tojson if efforts
                      else 'this model has no reasoning_effort') -}}
{%- endif -%}

{{- bos_token -}}
{#- Before version 7 a conversation begins with the user, who may say nothing. -#}
{%- if version < 7 -%}
  {%- set begin = namespace(role='') -%}
  {%- for message in messages if message.role != 'system' -%}
    {%- set begin.role = message.role if loop.first else begin.role -%}
  {%- endfor -%}
  {%- if begin.role != 'user' -%}
    {{- user_turn('', true, state.last < 0) -}}
  {%- endif -%}
{%- endif -%}
{%- for message in messages -%}
  {%- set begins = loop.first or loop.previtem.role != message.role -%}
  {%- set ends = loop.last or loop.nextitem.role != message.role -%}
  {%- if begins -%}
    {%- set state.turn = '' -%}
    {%- if message.role == 'user' -%}
      {%- set state.is_first = loop.index0 == state.first -%}
      {%- set state.is_last = loop.index0 == state.last -%}
    {%- endif -%}
  {%- endif -%}
  {%- if message.role in ['user', 'assistant'] -%}
    {%- set text = words(message.content) -%}
    {%- set state.turn = state.turn + ('\n\n' if state.turn and text else '') + text -%}
  {%- endif -%}

  {%- if message.role == 'system' -%}
    {{- '[SYSTEM_PROMPT]' + words(message.content) + '[/SYSTEM_PROMPT]' if version >= 7 -}}
  {%- elif message.role == 'user' -%}
    {%- if ends -%}
      {{- user_turn(state.turn, state.is_first, state.is_last) -}}
    {%- endif -%}
  {%- elif message.role == 'assistant' -%}
    {%- if state.due|length != state.results|length -%}
      {{- raise_exception('each tool call needs one result') -}}
    {%- endif -%}
    {%- set state.calls = message.tool_calls or [] -%}
    {%- if version < 7 and (text and true) == (state.calls and true) -%}
      {{- raise_exception('a message of the assistant must have either text or tool calls') -}}
    {%- endif -%}
    {%- set state.due = [] -%}
    {%- set state.results = [] -%}
    {%- for call in state.calls -%}
      {{- check_id(call.id) -}}
      {%- if version >= 11 and call.id in state.due -%}
        {{- raise_exception('two tool calls have the same id') -}}
      {%- endif -%}
      {%- set state.due = state.due + [call.id] -%}
    {%- endfor -%}
    {%- if ends -%}
      {%- if not state.turn and not state.calls -%}
        {{- raise_exception('a message of the assistant must have text or tool calls') -}}
      {%- endif -%}
      {{- state.turn.rstrip(' ') -}}
      {%- if state.calls -%}
        {{- calls_of(state.calls) -}}
      {%- endif -%}
      {{- eos_token -}}
    {%- endif -%}
  {%- else -%}
    {{- check_id(message.tool_call_id) -}}
    {%- if version >= 11 and (message.tool_call_id not in state.due
                              or message.tool_call_id in state.results) -%}
      {{- raise_exception('each result of a tool must have the id of one call in front of it') -}}
    {%- endif -%}
    {%- set state.results = state.results + [message.tool_call_id] -%}
    {%- if version < 11 -%}
      {{- result(message) -}}
    {%- elif ends -%}
      {#- The turn's results, by their calls. -#}
      {%- set turn = messages[loop.index0 + 1 - state.results|length : loop.index0 + 1] -%}
      {%- for id in state.due -%}
        {%- for one in turn if one.tool_call_id == id -%}
          {{- result(one) -}}
        {%- endfor -%}
      {%- endfor -%}
    {%- endif -%}
  {%- endif -%}
{%- endfor -%}
)jinja";

std::vector<std::string_view> Marks(int version) {
  std::vector<std::string_view> marks = {
      "[INST]",         "[/INST]",         "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
      "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]"};
  if (version >= 7)
    marks.insert(marks.end(), {"[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"});
  if (version >= 11) marks.insert(marks.end(), {"[ARGS]", "[CALL_ID]"});
  if (version >= 15) marks.insert(marks.end(), {"[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"});
  return marks;
}

}  // namespace

base::Result<std::string> MistralTemplate(const Tokenizer& tokenizer, TemplateOptions* options) {
  const InstructFormat& format = tokenizer.instruct_format();
  const std::string& version = format.version;
  const auto refuse = [](const std::string& why) {
    return base::Error{base::Code::kUnsupported, "tekken.json: " + why};
  };
  int number = 0;
  for (const int known : {3, 7, 11, 13, 15}) {
    if (version == fmt::format("v{}", known)) number = known;
  }
  if (number == 0) {
    return refuse(
        fmt::format("its chat format is '{}', and v3, v7, v11, v13 and v15 are known here",
                    base::Printable(version)));
  }
  for (const std::string_view mark : Marks(number)) {
    const std::optional<int32_t> id = tokenizer.TokenId(mark);
    if (!id || !tokenizer.IsSpecial(*id)) {
      return refuse(fmt::format("its chat format ({}) needs a special token {}, which is missing",
                                version, mark));
    }
  }
  if (number >= 15 && !format.settings)
    return refuse(fmt::format("its chat format ({}) needs model_settings_builder", version));
  options->json_tool_results = number < 7;
  options->between_parts = "\n\n";
  json::array efforts;
  if (number >= 15) efforts = json::array(format.efforts.begin(), format.efforts.end());
  return fmt::format(
             "{{%- set version = {} -%}}{{%- set efforts = {} -%}}{{%- set effort = {} -%}}",
             number, json::serialize(efforts), json::serialize(json::value(format.effort))) +
         std::string(kTemplate);
}

}  // namespace vllm::text
