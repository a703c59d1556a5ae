// SchemaDocument: a JSON Schema with its references resolved: its places, names and drafts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "sample/grammar/schema_value.h"

namespace ibid::grammar {

class SchemaDocument {
 public:
  static Result<SchemaDocument> read(std::string_view json, Fuel& fuel);

  const Value& root() const { return *root_; }
  // The place of a schema, as a JSON pointer: "#/properties/a".
  std::string pointer(const Value* schema) const;
  // The schema that a $ref or $dynamicRef of `schema` names. kUnsupported if it is not within the document.
  Result<const Value*> resolve(const Value* schema, std::string_view reference, bool is_dynamic, Fuel& fuel) const;
  // Drafts up to 7: a $ref has no siblings.
  bool is_old() const { return is_old_; }
  bool has_unevaluated() const { return has_unevaluated_; }
  // A reference means the same at every place.
  bool is_one_resource() const { return is_one_resource_; }

 private:
  struct Place {
    const Value* parent = nullptr;
    std::string step;  // of its pointer, in its parent's
    std::string base;  // the URI of the resource in which it stands
  };
  Status walk(const Value& schema, const Value* parent, std::string step, std::string base, Fuel& fuel);
  Status walk_children(const Value& schema, const std::string& base, Fuel& fuel);
  Status walk_referred(Fuel& fuel);

  Held held_;
  std::shared_ptr<const Value> root_;
  bool is_old_ = false, has_unevaluated_ = false, is_one_resource_ = true;
  std::unordered_map<const Value*, Place> places_;
  std::vector<const Value*> referring_;                                  // schemas with a $ref, as they are walked
  std::map<std::string, const Value*> resources_;                        // by URI without fragment
  std::map<std::pair<std::string, std::string>, const Value*> anchors_;  // by URI and name
  std::map<std::string, std::vector<const Value*>> dynamic_anchors_;     // by name
};

}  // namespace ibid::grammar
