"""Schemas as people write them, by kind, each with valid and invalid instances. Written for these tests."""
# ruff: noqa: E501 (a table)

from __future__ import annotations

from typing import Any

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
LABELS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}
QUANTITY = {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]+(\\.[0-9]+)?(m|Ki|Mi|Gi)?$"}]}


def tool(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"child": schema, "note": {"type": "string"}}, "required": ["child"]}
    return schema


def nested_value(depth: int, leaf: Any) -> Any:
    for _ in range(depth):
        leaf = {"child": leaf}
    return leaf


# kind → (schema, valid instances, invalid instances)
REAL: dict[str, list[tuple[Any, list[Any], list[Any]]]] = {
    "function tools": [
        (tool({"city": {"type": "string", "minLength": 1}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}, ["city"]),
         [{"city": "Oslo"}, {"city": "Rome", "unit": "f", "days": 3}], [{}, {"city": ""}, {"city": "x", "days": 15}, {"city": "x", "more": 1}]),
        (tool({"to": {"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 1, "maxItems": 5}, "subject": {"type": "string", "maxLength": 78},
               "body": {"type": "string"}, "attachments": {"anyOf": [{"type": "array", "items": {"type": "string", "format": "uri"}}, {"type": "null"}], "default": None}}, ["to", "subject", "body"]),
         [{"to": ["a@b.org"], "subject": "s", "body": "b\n\"q\"", "attachments": None}, {"to": ["a@b.org", "c@d.org"], "subject": "", "body": "", "attachments": ["https://x.org/a?b=c"]}],
         [{"to": [], "subject": "s", "body": "b"}, {"to": ["nobody"], "subject": "s", "body": "b"}]),
        (tool({"query": {"type": "string"}, "filters": {"type": "object", "properties": {"since": {"type": "string", "format": "date"}, "price": {"type": "object", "properties": {
            "min": {"type": "number", "minimum": 0}, "max": {"type": "number", "exclusiveMinimum": 0}}, "minProperties": 1}}, "additionalProperties": False}, "limit": {"type": "integer", "multipleOf": 10, "maximum": 100}}, ["query"]),
         [{"query": "shoes", "filters": {"since": "2024-02-29", "price": {"max": 19.99}}, "limit": 20}], [{"query": "x", "limit": 15}, {"query": "x", "filters": {"price": {}}}, {"query": "x", "filters": {"since": "2023-02-29"}}]),
        ({"type": "object", "oneOf": [tool({"action": {"const": "move"}, "x": {"type": "number"}, "y": {"type": "number"}}, ["action", "x", "y"]),
                                      tool({"action": {"const": "say"}, "text": {"type": "string"}}, ["action", "text"]), tool({"action": {"const": "stop"}}, ["action"])]},
         [{"action": "move", "x": 1.5, "y": -2}, {"action": "stop"}], [{"action": "move", "x": 1}, {"action": "stop", "text": "x"}, {"action": "fly"}]),
        ({"$defs": {"Step": {"type": "object", "title": "Step", "properties": {"explanation": {"type": "string"}, "output": {"type": "string"}}, "required": ["explanation", "output"]}},
          "title": "Reasoning", "type": "object", "properties": {"steps": {"type": "array", "items": {"$ref": "#/$defs/Step"}, "maxItems": 8}, "answer": {"anyOf": [{"type": "number"}, {"type": "null"}]}}, "required": ["steps", "answer"]},
         [{"steps": [{"explanation": "é", "output": "2"}], "answer": 2}, {"steps": [], "answer": None}], [{"steps": [{}], "answer": 1}, {"steps": []}]),
    ],
    "Kubernetes-like": [
        ({"type": "object", "required": ["apiVersion", "kind", "metadata", "spec"], "properties": {
            "apiVersion": {"const": "apps/v1"}, "kind": {"const": "Deployment"},
            "metadata": {"type": "object", "required": ["name"], "properties": {"name": NAME, "namespace": NAME, "labels": LABELS}},
            "spec": {"type": "object", "required": ["template"], "properties": {
                "replicas": {"type": "integer", "minimum": 0, "format": "int32"}, "paused": {"type": ["boolean", "null"]},
                "template": {"type": "object", "required": ["containers"], "properties": {"containers": {"type": "array", "minItems": 1, "items": {
                    "type": "object", "required": ["name", "image"], "properties": {"name": NAME, "image": {"type": "string"},
                        "ports": {"type": "array", "items": {"type": "object", "required": ["containerPort"], "properties": {"containerPort": {"type": "integer", "minimum": 1, "maximum": 65535}, "protocol": {"enum": ["TCP", "UDP", "SCTP"]}}}},
                        "resources": {"type": "object", "properties": {"limits": {"type": "object", "additionalProperties": QUANTITY}, "requests": {"type": "object", "additionalProperties": QUANTITY}}},
                        "imagePullPolicy": {"enum": ["Always", "Never", "IfNotPresent"]}}}}}}}}}},
         [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web-1", "labels": {"app": "web"}}, "spec": {"replicas": 2, "template": {"containers": [
             {"name": "c", "image": "nginx:1", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "500m", "memory": "1Gi", "gpu": 1}}}]}}}],
         [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "Web"}, "spec": {"template": {"containers": [{"name": "c", "image": "i"}]}}},
          {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": {"containers": []}}}]),
        ({"type": "object", "properties": {"rules": {"type": "array", "items": {"type": "object", "properties": {
            "http": {"type": "object", "properties": {"paths": {"type": "array", "items": {"type": "object", "required": ["path"], "properties": {"path": {"type": "string", "pattern": "^/"}, "pathType": {"enum": ["Exact", "Prefix"]},
                "backend": {"oneOf": [{"required": ["service"]}, {"required": ["resource"]}], "type": "object", "properties": {"service": {"type": "string"}, "resource": {"type": "string"}}}}}}}}}}}}},
         [{"rules": [{"http": {"paths": [{"path": "/a", "backend": {"service": "s"}}]}}]}], [{"rules": [{"http": {"paths": [{"path": "a"}]}}]}, {"rules": [{"http": {"paths": [{"path": "/", "backend": {"service": "s", "resource": "r"}}]}}]}]),
        ({"$schema": "http://json-schema.org/schema#", "type": "object", "properties": {"data": {"type": ["object", "null"], "additionalProperties": {"type": ["string", "null"]}}, "immutable": {"type": "boolean"}},
          "patternProperties": {"^x-": {}}, "additionalProperties": False}, [{"data": {"k.v": "1", "n": None}, "x-a": [1]}, {}], [{"datum": {}}, {"data": {"k": 1}}]),
    ],
    "GitHub-like": [
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": ["on", "jobs"], "properties": {
            "name": {"type": "string"}, "on": {"oneOf": [{"$ref": "#/definitions/event"}, {"type": "array", "items": {"$ref": "#/definitions/event"}, "minItems": 1},
                {"type": "object", "properties": {"push": {"type": ["object", "null"]}, "schedule": {"type": "array", "items": {"type": "object", "properties": {"cron": {"type": "string"}}, "required": ["cron"]}}}, "additionalProperties": False}]},
            "jobs": {"type": "object", "patternProperties": {"^[_a-zA-Z][a-zA-Z0-9_-]*$": {"oneOf": [{"$ref": "#/definitions/normalJob"}, {"$ref": "#/definitions/reusable"}]}}, "minProperties": 1, "additionalProperties": False}},
          "definitions": {"event": {"type": "string", "enum": ["push", "pull_request", "release", "workflow_dispatch"]},
              "step": {"type": "object", "properties": {"name": {"type": "string"}, "uses": {"type": "string"}, "run": {"type": "string"}, "with": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}},
                       "oneOf": [{"required": ["uses"]}, {"required": ["run"]}], "dependencies": {"with": ["uses"]}, "additionalProperties": False},
              "normalJob": {"type": "object", "required": ["runs-on"], "properties": {"runs-on": {"type": "string"}, "steps": {"type": "array", "items": {"$ref": "#/definitions/step"}, "minItems": 1}, "timeout-minutes": {"type": "number", "minimum": 0}}, "additionalProperties": False},
              "reusable": {"type": "object", "required": ["uses"], "properties": {"uses": {"type": "string", "pattern": "^(.+/)+(.+)\\.(ya?ml)(@.+)?$"}}, "additionalProperties": False}}},
         [{"on": "push", "jobs": {"build": {"runs-on": "x", "steps": [{"run": "make"}, {"uses": "a/b@v1", "with": {"k": 1}}]}}}, {"on": ["push", "release"], "jobs": {"a": {"uses": "./w/x.yml@main"}}}, {"on": {"push": None}, "jobs": {"_": {"runs-on": "y"}}}],
         [{"on": "pull", "jobs": {"b": {"runs-on": "x"}}}, {"on": "push", "jobs": {}}, {"on": "push", "jobs": {"b": {"runs-on": "x", "steps": [{"run": "a", "uses": "b"}]}}}, {"on": "push", "jobs": {"b": {"runs-on": "x", "steps": [{"run": "a", "with": {}}]}}}]),
        ({"type": "object", "properties": {"version": {"const": 2}, "updates": {"type": "array", "minItems": 1, "items": {"type": "object", "required": ["package-ecosystem", "directory", "schedule"], "properties": {
            "package-ecosystem": {"enum": ["pip", "npm", "docker", "cargo"]}, "directory": {"type": "string"}, "schedule": {"type": "object", "required": ["interval"], "properties": {"interval": {"enum": ["daily", "weekly"]}, "day": {"enum": ["monday", "friday"]}, "time": {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}},
                "if": {"properties": {"interval": {"const": "daily"}}}, "then": {"not": {"required": ["day"]}}}}}}}, "required": ["version", "updates"]},
         [{"version": 2, "updates": [{"package-ecosystem": "pip", "directory": "/", "schedule": {"interval": "weekly", "day": "monday", "time": "09:30"}}]}],
         [{"version": 2, "updates": [{"package-ecosystem": "pip", "directory": "/", "schedule": {"interval": "daily", "day": "monday"}}]}, {"version": 2, "updates": [{"package-ecosystem": "pip", "directory": "/", "schedule": {"interval": "weekly", "time": "25:00"}}]}]),
        ({"type": "object", "properties": {"name": {"type": "string", "pattern": "^(?:@[a-z0-9-*~][a-z0-9-*._~]*/)?[a-z0-9-~][a-z0-9-._~]*$", "minLength": 1, "maxLength": 214}, "version": {"type": "string", "pattern": "^\\d+\\.\\d+\\.\\d+(-[\\w.]+)?$"},
            "license": {"anyOf": [{"type": "string"}, {"enum": ["MIT", "Apache-2.0"]}]}, "keywords": {"type": "array", "items": {"type": "string"}}, "scripts": {"type": "object", "properties": {"test": {"type": "string"}}, "additionalProperties": {"type": "string"}},
            "private": {"anyOf": [{"type": "boolean"}, {"enum": ["false", "true"]}]}, "dependencies": {"$ref": "#/$defs/deps"}}, "patternProperties": {"^_": {"description": "private"}}, "$defs": {"deps": {"type": "object", "additionalProperties": {"type": "string"}}},
          "anyOf": [{"type": "object", "not": {"required": ["bundled"]}}, {"type": "object", "required": ["name"]}]},
         [{"name": "@a/b-c", "version": "1.2.3-rc.1", "scripts": {"test": "t", "x": "y"}, "_x": 1, "other": 2}, {"private": "true"}], [{"name": "A"}, {"version": "1.2"}, {"dependencies": {"a": 1}}, {"bundled": 1}]),
        ({"type": "object", "properties": {"labels": {"type": "array", "items": {"type": "string", "minLength": 1}, "uniqueItems": True}}}, [{"labels": ["a", "b"]}], [{"labels": ["a", "a"]}]),
    ],
    "OpenAPI-like": [
        ({"type": "object", "required": ["openapi", "paths"], "properties": {"openapi": {"type": "string", "pattern": "^3\\.0\\.\\d(-.+)?$"}, "info": {"type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}, "patternProperties": {"^x-": {}}, "additionalProperties": False},
            "paths": {"type": "object", "patternProperties": {"^\\/": {"type": "object", "propertyNames": {"enum": ["get", "put", "post", "summary"]}}, "^x-": {}}, "additionalProperties": False}}, "additionalProperties": False},
         [{"openapi": "3.0.3", "info": {"title": "t", "x-y": 1}, "paths": {"/a": {"get": {}, "summary": "s"}, "x-z": 0}}], [{"openapi": "2.0", "paths": {}}, {"openapi": "3.0.1", "paths": {"a": {}}}, {"openapi": "3.0.1", "paths": {"/a": {"fetch": 1}}}]),
        ({"$defs": {"Pet": {"type": "object", "required": ["kind", "name"], "properties": {"kind": {"type": "string"}, "name": {"type": "string"}}},
                    "Cat": {"allOf": [{"$ref": "#/$defs/Pet"}, {"properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "maximum": 9}}}]}, "Dog": {"allOf": [{"$ref": "#/$defs/Pet"}, {"properties": {"kind": {"const": "dog"}, "bark": {"type": "boolean"}}, "required": ["bark"]}]}},
          "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]}, [{"kind": "cat", "name": "T", "lives": 9}, {"kind": "dog", "name": "R", "bark": True}], [{"kind": "dog", "name": "R"}, {"kind": "cow", "name": "B"}, {"kind": "cat", "name": "T", "lives": 10}]),
        ({"type": "object", "properties": {"id": {"type": "string", "format": "uuid"}, "createdAt": {"type": "string", "format": "date-time"}, "amount": {"type": "number", "multipleOf": 0.01, "minimum": 0}, "currency": {"type": "string", "minLength": 3, "maxLength": 3},
            "status": {"enum": ["open", "paid", None], "nullable": True}, "ip": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}], "type": "string"}}, "required": ["id", "amount"]},
         [{"id": "00000000-0000-4000-8000-000000000000", "amount": 12.5, "currency": "EUR", "status": None, "ip": "::1"}], [{"id": "x", "amount": 1}, {"id": "00000000-0000-4000-8000-000000000000", "amount": 0.001}, {"id": "00000000-0000-4000-8000-000000000000", "amount": 1, "ip": "1.2.3"}]),
        ({"$defs": {"Schema": {"type": "object", "properties": {"type": {"enum": ["object", "string"]}, "properties": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Schema"}}, "allOf": {"type": "array", "items": {"$ref": "#/$defs/Schema"}}}, "additionalProperties": False}}, "$ref": "#/$defs/Schema"},
         [{"type": "object", "properties": {"a": {"allOf": [{"type": "string"}]}}}], [{"properties": {"a": {"type": "number"}}}]),
        ({"type": "object", "allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {"type": "object", "properties": {"b": {"type": "string"}}}], "unevaluatedProperties": False}, [{"a": "1", "b": "2"}], [{"a": "1", "c": 1}, {"b": "2"}]),
    ],
    "deeply nested": [
        (nested(25), [nested_value(25, 3)], [nested_value(24, 3), nested_value(25, "3")]),
        ({"$defs": {"tree": {"type": "object", "properties": {"value": {}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}, "required": ["children"], "additionalProperties": False}}, "$ref": "#/$defs/tree"},
         [{"children": [{"value": {"a": [1, None]}, "children": []}] * 3}], [{"children": [{}]}]),
        ({"$defs": {"e": {"anyOf": [{"type": "number"}, tool({"op": {"enum": ["+", "*"]}, "args": {"type": "array", "items": {"$ref": "#/$defs/e"}, "minItems": 2, "maxItems": 2}}, ["op", "args"])]}}, "$ref": "#/$defs/e"},
         [1, {"op": "+", "args": [1, {"op": "*", "args": [2, 3]}]}], [{"op": "+", "args": [1]}, {"op": "-", "args": [1, 2]}]),
    ],
    "large enums": [
        ({"enum": [f"country-{number:04}" for number in range(1500)]}, ["country-0000", "country-1499"], ["country-1500", "country-"]),
        ({"type": "array", "items": {"enum": list(range(0, 3000, 3))}, "maxItems": 3}, [[0, 2997]], [[1], [0, 3, 6, 9]]),
        ({"type": "object", "properties": {f"flag_{number}": {"type": "boolean"} for number in range(150)}, "additionalProperties": False}, [{"flag_3": True, "flag_149": False}, {}], [{"flag_150": True}, {"flag_1": 1}]),
    ],
}  # fmt: skip
