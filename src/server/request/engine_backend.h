// EngineBackend: an engine of this process as a Backend.
#pragma once

#include <memory>

#include "engine/record/recorder.h"
#include "server/observe/kv_events.h"
#include "server/request/backend.h"
#include "server/request/picture_reader.h"
#include "text/jinja/chat_template.h"

namespace ibid {

struct EngineParts {
  ModelInfo info;
  std::shared_ptr<const Tokenizer> tokenizer;
  Result<ChatTemplate> chat_template;  // an error switches off chat alone, and is chat's answer
  std::unique_ptr<Engine> engine;
  std::shared_ptr<Recorder> recorder = nullptr;             // that the engine is recorded by; null: it is not
  std::shared_ptr<AdapterShelf> adapters = nullptr;         // of the engine's model; null: none
  std::shared_ptr<const PictureReader> pictures = nullptr;  // of a model with a vision tower
  std::unique_ptr<PictureEncoder> encoder = nullptr;        // likewise
  std::unique_ptr<KvEvents> events = nullptr;               // that hears the engine's cache; null: no one does
  std::shared_ptr<void> keep;  // what the engine refers to (model, stream, weights); let go after it
};

std::unique_ptr<Backend> make_engine_backend(EngineParts parts);

}  // namespace ibid
