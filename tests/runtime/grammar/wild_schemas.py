"""Schemas in the manner of public ones, with the keywords that those use and rarely need: descriptions, examples,
drafts, `$id`, formats, vendors' extensions. Written for these tests; each with a valid instance."""
# ruff: noqa: E501 (a table)

from __future__ import annotations

from typing import Any

D7 = "http://json-schema.org/draft-07/schema#"
D4 = "http://json-schema.org/draft-04/schema#"
D6 = "http://json-schema.org/draft-06/schema#"
D19 = "https://json-schema.org/draft/2019-09/schema"
D20 = "https://json-schema.org/draft/2020-12/schema"
S: dict[str, Any] = {"type": "string"}
I: dict[str, Any] = {"type": "integer"}  # noqa: E741
B: dict[str, Any] = {"type": "boolean"}
UNIQUE: dict[str, Any] = {"type": "array", "items": S, "uniqueItems": True}


def obj(required: str = "", closed: bool = False, **properties: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name.rstrip("_"): each for name, each in properties.items()},
    }
    if required:
        made["required"] = required.split()
    return {**made, "additionalProperties": False} if closed else made


def arr(items: Any, **more: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **more}


WILD: dict[str, list[tuple[Any, Any]]] = {
    "OpenAPI components": [
        (obj("id name", id={**I, "format": "int64", "example": 10}, name={**S, "example": "doggie"}, category={"$ref": "#/components/schemas/Category"}, photoUrls={**arr(S), "xml": {"wrapped": True}},
             status={**S, "enum": ["available", "pending", "sold"], "description": "pet status in the store"}) | {"components": {"schemas": {"Category": obj(id={**I, "format": "int64"}, name={**S, "pattern": "^[a-zA-Z0-9]+[a-zA-Z0-9\\.\\-_]*[a-zA-Z0-9]+$"})}}},
         {"id": 10, "name": "doggie", "category": {"id": 1, "name": "Dogs"}, "photoUrls": ["u"], "status": "sold"}),
        (obj("code", type_="x", code={**I, "format": "int32", "minimum": 100, "exclusiveMaximum": 600}, message={**S, "nullable": True}) | {"properties": {"code": {**I, "minimum": 100, "exclusiveMaximum": 600}, "message": {"type": ["string", "null"]}, "details": arr({"type": "object", "additionalProperties": True})}},
         {"code": 404, "message": None, "details": [{"x": 1}]}),
        ({"allOf": [obj("petType", petType=S) | {"discriminator": {"propertyName": "petType", "mapping": {"dog": "Dog"}}}, obj(packSize={**I, "minimum": 0, "default": 0, "format": "int32"})]}, {"petType": "dog", "packSize": 3}),
        (obj("data", data=arr({"oneOf": [obj("type id", type_={"const": "user"}, id={**S, "format": "uuid"}, email={**S, "format": "email"}), obj("type id", type_={"const": "team"}, id=I, members={**I, "minimum": 1})]}), next={"anyOf": [{**S, "format": "uri"}, {"type": "null"}]}),
         {"data": [{"type": "user", "id": "3fa85f64-5717-4562-b3fc-2c963f66afa6", "email": "a@example.com"}, {"type": "team", "id": 3, "members": 2}], "next": None}),
        (obj("createdAt", createdAt={**S, "format": "date-time", "readOnly": True}, birthday={**S, "format": "date"}, password={**S, "format": "password", "minLength": 8, "maxLength": 64, "writeOnly": True}, avatar={**S, "format": "byte"}, website={**S, "format": "uri", "maxLength": 200}, rating={"type": "number", "format": "float", "minimum": 0, "maximum": 5, "multipleOf": 0.5}),
         {"createdAt": "2024-01-31T12:00:00Z", "rating": 4.5, "website": "https://example.com/a"}),
        (obj("geometry", geometry={"oneOf": [obj("type coordinates", type_={"enum": ["Point"]}, coordinates=arr({"type": "number"}, minItems=2, maxItems=3)), obj("type coordinates", type_={"enum": ["Polygon"]}, coordinates=arr(arr(arr({"type": "number"}, minItems=2), minItems=4)))]}, bbox=arr({"type": "number"}, minItems=4, maxItems=4)),
         {"geometry": {"type": "Point", "coordinates": [1.5, 2]}, "bbox": [0, 0, 1, 1]}),
        (obj("openapi", openapi={**S, "pattern": "^3\\.1\\.\\d+(-.+)?$"}, security=arr({"type": "object", "additionalProperties": arr(S)}), tags=arr(obj("name", name=S, description=S), uniqueItems=False)) | {"patternProperties": {"^x-": True}, "unevaluatedProperties": False, "$schema": D20},
         {"openapi": "3.1.0", "security": [{"key": []}], "x-internal": {"a": 1}}),
        (obj("scopes", scopes=UNIQUE, grant={"enum": ["code", "implicit"]}), {"scopes": ["read", "write"], "grant": "code"}),
    ],
    "workflows and CI": [
        ({"$schema": D7, "definitions": {"env": {"type": "object", "additionalProperties": {"oneOf": [S, {"type": "number"}, B]}}, "shell": {"anyOf": [S, {"enum": ["bash", "pwsh", "sh"]}]},
            "expression": {**S, "pattern": "^\\$\\{\\{(.|[\r\n])*\\}\\}$"}}, **obj("jobs", name=S, env={"$ref": "#/definitions/env"}, defaults=obj(closed=True, run=obj(closed=True, shell={"$ref": "#/definitions/shell"}) | {"minProperties": 1}),
            concurrency={"oneOf": [S, obj("group", closed=True, group=S, cancel_={"oneOf": [B, {"$ref": "#/definitions/expression"}]})]}, jobs={"type": "object", "patternProperties": {"^[_a-zA-Z][a-zA-Z0-9_-]*$": obj(steps=arr(obj(run=S, if_={"type": ["boolean", "number", "string"]}), minItems=1))}, "minProperties": 1, "additionalProperties": False})},
         {"name": "CI", "env": {"A": 1, "B": "x"}, "defaults": {"run": {"shell": "zsh"}}, "concurrency": {"group": "g", "cancel": "${{ a }}"}, "jobs": {"build": {"steps": [{"run": "make", "if": "always()"}]}}}),
        ({"$schema": D7, **obj(image={"oneOf": [{**S, "minLength": 1}, obj("name", name=S, entrypoint=arr(S, minItems=1))]}, stages=UNIQUE, retry={"oneOf": [{**I, "minimum": 0, "maximum": 2}, obj(max_={**I, "minimum": 0, "maximum": 2}, when={"oneOf": [S, arr(S)]})]})},
         {"image": "python:3", "stages": ["build", "test"], "retry": 2}),
        ({"$schema": D7, **obj("version", version={"enum": [2, "2", 2.1]}, orbs={"type": "object", "additionalProperties": {"oneOf": [{**S, "pattern": "^([a-z0-9_-]+/[a-z0-9_-]+|[a-z]+)@(volatile|dev:.+|[0-9]+(\\.[0-9]+)*)$"}, {"type": "object"}]}}, jobs={"type": "object", "additionalProperties": obj("steps", steps=arr({"anyOf": [{"enum": ["checkout", "setup_remote_docker"]}, {"type": "object", "minProperties": 1, "maxProperties": 1}]}), parallelism={**I, "default": 1})})},
         {"version": 2.1, "orbs": {"node": "circleci/node@5.0"}, "jobs": {"b": {"steps": ["checkout", {"run": "make"}]}}}),
        ({"$schema": D7, **obj(repos=arr(obj("repo hooks", repo=S, rev=S, hooks=arr(obj("id", id=S, args=arr(S), exclude={**S, "format": "regex-like"}, stages=arr({"enum": ["commit", "push", "manual"]}, uniqueItems=True)), minItems=1)), minItems=1), fail_fast={**B, "default": False}) | {"required": ["repos"]}},
         {"repos": [{"repo": "r", "rev": "v1", "hooks": [{"id": "ruff", "args": ["--fix"], "stages": ["push", "commit"]}]}]}),
        ({"$schema": D7, **obj(language={"oneOf": [{"enum": ["python", "ruby"]}, arr({"enum": ["python", "ruby"]})]}, matrix={"type": "object", "properties": {"include": arr({"type": "object"}), "fast_finish": B}, "additionalProperties": True}, if_=S, sudo={"enum": [True, False, "", "required", "enabled"]}, notifications={"anyOf": [{"const": False}, obj(email={"oneOf": [B, {**S, "format": "email"}, arr({**S, "format": "email"})]})]})},
         {"language": ["python"], "sudo": "required", "notifications": {"email": ["a@b.org"]}}),
    ],
    "Kubernetes CRDs": [
        (obj("spec", apiVersion=S, kind=S, metadata={"type": "object"}, spec=obj("schedule jobTemplate", schedule=S, suspend=B, startingDeadlineSeconds={**I, "format": "int64"}, concurrencyPolicy={"enum": ["Allow", "Forbid", "Replace"]}, jobTemplate={"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
             status=obj(conditions=arr(obj("type status lastTransitionTime reason message", type_={**S, "maxLength": 316, "pattern": "^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"}, status={"enum": ["True", "False", "Unknown"]}, lastTransitionTime={**S, "format": "date-time"}, reason={**S, "minLength": 1, "maxLength": 1024, "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"}, message={**S, "maxLength": 32768}, observedGeneration={**I, "minimum": 0}), **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}))),
         {"apiVersion": "v1", "kind": "Cron", "spec": {"schedule": "* * * * *", "jobTemplate": {"a": 1}}, "status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": "Ok", "message": "fine"}]}}),
        (obj("spec", spec=obj("hosts", hosts=arr(S), tls=arr(obj(hosts=arr(S), secretName=S)), retries={**I, "minimum": 0}, timeout={**S, "pattern": "^([0-9]+(\\.[0-9]+)?(ns|us|ms|s|m|h))+$"}, port={"anyOf": [I, S], "x-kubernetes-int-or-string": True})), {"spec": {"hosts": ["a"], "timeout": "1.5s", "port": "http"}}),
        (obj("spec", spec={**obj(configMap=obj("name", name=S), secret=obj("name", name=S), value=S), "oneOf": [{"required": ["configMap"]}, {"required": ["secret"]}, {"required": ["value"]}]}), {"spec": {"secret": {"name": "s"}}}),
        (obj("selector", selector=obj(matchLabels={"type": "object", "additionalProperties": S}, matchExpressions=arr(obj("key operator", key=S, operator={"enum": ["In", "NotIn", "Exists", "DoesNotExist"]}, values=arr(S)))), replicas={**I, "format": "int32", "minimum": 0, "maximum": 2147483647}, resources=obj(limits={"type": "object", "additionalProperties": {"anyOf": [I, S], "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$"}})),
         {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "k", "operator": "Exists"}]}, "replicas": 3, "resources": {"limits": {"cpu": "500m", "mem": 1}}}),
        (obj("groups", groups=arr(obj("name rules", name=S, interval={**S, "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"}, rules=arr({**obj("expr", alert=S, record=S, expr={"anyOf": [S, I]}, labels={"type": "object", "additionalProperties": S}), "oneOf": [{"required": ["alert"]}, {"required": ["record"]}]}))))
         , {"groups": [{"name": "g", "interval": "30s", "rules": [{"alert": "Down", "expr": "up == 0"}]}]}),
    ],
    "packages and configuration": [
        ({"$schema": D7, "definitions": {"person": {"type": ["object", "string"], "required": ["name"], "properties": {"name": S, "url": {**S, "format": "uri"}, "email": {**S, "format": "email"}}}, "dependency": {"type": "object", "additionalProperties": S}},
          **obj("name", name={**S, "maxLength": 214, "minLength": 1, "pattern": "^(?:(?:@(?:[a-z0-9-*._~]+)?/[a-z0-9-._~])|[a-z0-9-~])[a-z0-9-._~]*$"}, author={"$ref": "#/definitions/person"}, bin={"type": ["string", "object"], "additionalProperties": S}, exports={"oneOf": [{**S, "pattern": "^\\./"}, {"type": "object", "patternProperties": {"^\\.": {"type": ["string", "object", "null"]}}, "additionalProperties": False}]}, dependencies={"$ref": "#/definitions/dependency"}, os=arr(S), engines={"type": "object", "properties": {"node": S}, "additionalProperties": S}, workspaces={"anyOf": [arr(S), obj(packages=arr(S))]}, type_={"enum": ["commonjs", "module"], "default": "commonjs"})},
         {"name": "left-pad", "author": {"name": "A", "email": "a@b.org"}, "bin": "./a.js", "exports": {".": "./index.js"}, "dependencies": {"x": "^1"}, "workspaces": ["p/*"], "type": "module"}),
        ({"$schema": D4, **obj(compilerOptions=obj(target={**S, "anyOf": [{"enum": ["ES5", "ES2015", "ESNext"]}, {"pattern": "^([Ee][Ss]([356]|(20(1[5-9]|2[0-2]))|[Nn][Ee][Xx][Tt]))$"}]}, strict=B, lib=arr({**S, "anyOf": [{"enum": ["DOM", "ES6"]}, {"pattern": "^[Dd][Oo][Mm]$"}]}), paths={"type": "object", "additionalProperties": arr(S)}, maxNodeModuleJsDepth={"type": "number", "minimum": 0, "exclusiveMinimum": True}), extends=S, references=arr(obj("path", path=S))) , "allOf": [{"anyOf": [{"required": ["compilerOptions"]}, {"required": ["extends"]}]}]},
         {"compilerOptions": {"target": "es2020", "strict": True, "lib": ["dom"], "paths": {"@/*": ["src/*"]}, "maxNodeModuleJsDepth": 1}}),
        ({"$schema": D7, **obj("project", project=obj("name", name={**S, "pattern": "^([a-zA-Z\\d]|[a-zA-Z\\d][\\w.-]*[a-zA-Z\\d])$"}, version={**S, "pattern": "^v?((([0-9]+)!)?([0-9]+(\\.[0-9]+)*))$"}, readme={"oneOf": [S, obj("file", file=S) , obj("text", text=S)]}, dynamic=arr({"enum": ["version", "readme"]}, uniqueItems=True), license={"oneOf": [obj("file", closed=True, file=S), obj("text", closed=True, text=S)]})
               | {"oneOf": [{"required": ["dynamic"], "properties": {"dynamic": {"contains": {"const": "version"}}}}, {"required": ["version"]}]})},
         {"project": {"name": "palm", "version": "1.2", "readme": "README.md", "license": {"text": "MIT"}}}),
        ({"$schema": D7, **obj(root=B, env={"type": "object", "additionalProperties": B}, rules={"type": "object", "additionalProperties": {"oneOf": [{"$ref": "#/definitions/severity"}, {"type": "array", "items": [{"$ref": "#/definitions/severity"}], "additionalItems": True, "minItems": 1}]}}, overrides=arr(obj("files", files={"oneOf": [S, arr(S, minItems=1)]}))), "definitions": {"severity": {"oneOf": [{"const": 0}, {"const": 1}, {"const": 2}, {"enum": ["off", "warn", "error"]}]}}},
         {"root": True, "rules": {"semi": [2, "always"], "eqeqeq": "off"}, "overrides": [{"files": "*.ts"}]}),
        ({"$schema": D7, **obj("services", version=S, services={"type": "object", "patternProperties": {"^[a-zA-Z0-9._-]+$": obj(image=S, ports=arr({"oneOf": [{"type": "number"}, S, obj(target=I, published={"type": ["string", "integer"]})]}), environment={"oneOf": [{"type": "object", "patternProperties": {".+": {"type": ["string", "number", "boolean", "null"]}}, "additionalProperties": False}, arr(S)]}, depends_on={"oneOf": [arr(S), {"type": "object", "additionalProperties": False, "patternProperties": {"^[a-zA-Z0-9._-]+$": obj("condition", condition={"enum": ["service_started", "service_healthy"]})}}]})}, "additionalProperties": False}) | {"patternProperties": {"^x-": {}}, "additionalProperties": False}},
         {"version": "3", "services": {"web": {"image": "nginx", "ports": ["80:80", 8080], "environment": {"A": None}, "depends_on": ["db"]}, "db": {}}, "x-a": 1}),
        ({"$schema": D6, "$id": "http://example.com/root.json", **obj("checked", checked=B, dimensions=obj("width height", width={"type": "number", "exclusiveMinimum": 0}, height={"type": "number", "exclusiveMinimum": 0}), tags=arr({**S, "examples": ["a"]}), price={"type": "number", "default": 0, "examples": [12.5]})},
         {"checked": False, "dimensions": {"width": 5, "height": 10.5}, "tags": ["a"], "price": 1}),
    ],
    "function tools": [
        (obj("location", closed=True, location={**S, "description": "City, e.g. San Francisco, CA"}, unit={**S, "enum": ["celsius", "fahrenheit"]}, when={"anyOf": [{**S, "format": "date-time"}, {"type": "null"}], "default": None}), {"location": "Paris", "unit": "celsius", "when": None}),
        (obj("to subject", closed=True, to=arr({**S, "format": "email"}, minItems=1), cc={"anyOf": [arr({**S, "format": "email"}), {"type": "null"}]}, subject={**S, "maxLength": 78}, priority={**I, "minimum": 1, "maximum": 5, "default": 3}, attachments=arr(obj("url", url={**S, "format": "uri"}, name={"type": ["string", "null"]}))), {"to": ["a@b.org"], "cc": None, "subject": "Hi", "attachments": [{"url": "http://x/y"}]}),
        ({"$defs": {"Filter": {"anyOf": [{"$ref": "#/$defs/Leaf"}, {"$ref": "#/$defs/Group"}]}, "Leaf": obj("field op value", closed=True, field={"enum": ["age", "city"]}, op={"enum": ["=", "<", ">"]}, value={"anyOf": [S, {"type": "number"}]}), "Group": obj("logic filters", closed=True, logic={"enum": ["and", "or"]}, filters=arr({"$ref": "#/$defs/Filter"}, minItems=1))}, **obj("table where", table=S, where={"$ref": "#/$defs/Filter"}, limit={"anyOf": [I, {"type": "null"}], "default": None})},
         {"table": "people", "where": {"logic": "and", "filters": [{"field": "age", "op": ">", "value": 3}]}}),
        (obj("command", closed=True, command={"const": "resize"}, width={**I, "exclusiveMinimum": 0, "multipleOf": 8}, height={**I, "exclusiveMinimum": 0, "multipleOf": 8}) | {"dependentRequired": {"width": ["height"]}}, {"command": "resize", "width": 64, "height": 32}),
        (obj("mode", mode={"enum": ["file", "text"]}, path=S, text=S) | {"if": {"properties": {"mode": {"const": "file"}}, "required": ["mode"]}, "then": {"required": ["path"]}, "else": {"required": ["text"]}}, {"mode": "text", "text": "x"}),
        (obj("id amount", id={**S, "format": "uuid"}, amount={"type": "number", "minimum": 0.01, "multipleOf": 0.01}, currency={**S, "pattern": "^[A-Z]{3}$", "examples": ["EUR"]}, metadata={"type": "object", "maxProperties": 3, "propertyNames": {"pattern": "^[a-z_]+$", "maxLength": 20}, "additionalProperties": {**S, "maxLength": 50}}), {"id": "3fa85f64-5717-4562-b3fc-2c963f66afa6", "amount": 12.34, "currency": "EUR", "metadata": {"a": "b"}}),
        (obj("items", items=arr(obj("sku qty", sku={**S, "pattern": "^[A-Z]{2,4}-\\d{3,6}$"}, qty={**I, "minimum": 1, "maximum": 99}), minItems=1, maxItems=20), coupon={**S, "minLength": 4, "maxLength": 12}), {"items": [{"sku": "AB-123", "qty": 2}], "coupon": "SAVE10"}),
        ({"type": "object", "properties": {"steps": {"type": "array", "prefixItems": [{"const": "start"}, {"type": "integer"}], "items": {"type": ["string", "number"]}, "minItems": 2, "contains": {"const": "end"}, "maxContains": 1}}, "required": ["steps"]}, {"steps": ["start", 3, "x", "end"]}),
    ],
    "events, records and documents": [
        ({"$schema": D20, "$id": "https://example.com/tree", "$dynamicAnchor": "node", "type": "object", "properties": {"data": True, "children": {"type": "array", "items": {"$dynamicRef": "#node"}}}}, {"data": 1, "children": [{"children": []}]}),
        ({"$schema": D19, "$recursiveAnchor": True, "type": "object", "properties": {"name": S, "nested": {"$recursiveRef": "#"}}, "unevaluatedProperties": False}, {"name": "a", "nested": {"name": "b"}}),
        ({"$schema": D7, "type": "object", "required": ["resourceType"], "properties": {"resourceType": {"const": "Patient"}, "id": {**S, "pattern": "^[A-Za-z0-9\\-.]{1,64}$"}, "birthDate": {**S, "pattern": "^([0-9]([0-9]([0-9][1-9]|[1-9]0)|[1-9]00)|[1-9]000)(-(0[1-9]|1[0-2])(-(0[1-9]|[1-2][0-9]|3[0-1]))?)?$"}, "name": arr(obj(closed=True, use={"enum": ["usual", "official"]}, family=S, given=arr(S))), "gender": {"enum": ["male", "female", "other", "unknown"]}}, "additionalProperties": False}, {"resourceType": "Patient", "id": "p-1", "birthDate": "1974-12-25", "name": [{"use": "official", "family": "C", "given": ["P"]}]}),
        (obj("type time", specversion={"const": "1.0"}, type_={**S, "minLength": 1}, source={**S, "format": "uri-reference", "minLength": 1}, time={"type": ["string", "null"], "format": "date-time"}, data={"type": ["object", "string", "number", "array", "boolean", "null"]}, data_base64={"type": ["string", "null"], "contentEncoding": "base64"}) | {"not": {"required": ["data", "data_base64"]}}, {"type": "a", "source": "/x", "time": None, "data": [1]}),
        (obj("nbformat cells", nbformat={**I, "minimum": 4, "maximum": 4}, metadata={"type": "object", "additionalProperties": True}, cells=arr({"oneOf": [obj("cell_type source", closed=True, cell_type={"enum": ["markdown"]}, source={"$ref": "#/definitions/multiline"}, metadata={"type": "object"}), obj("cell_type source outputs", closed=True, cell_type={"enum": ["code"]}, source={"$ref": "#/definitions/multiline"}, outputs=arr({"type": "object"}), execution_count={"type": ["integer", "null"], "minimum": 0})]})) | {"definitions": {"multiline": {"oneOf": [S, arr(S)]}}, "$schema": D4},
         {"nbformat": 4, "metadata": {}, "cells": [{"cell_type": "code", "source": ["a"], "outputs": [], "execution_count": None}]}),
        (obj("lat lon", lat={"type": "number", "minimum": -90, "maximum": 90}, lon={"type": "number", "minimum": -180, "maximum": 180}, address={"type": "object", "properties": {"post-office-box": S, "street": S, "region": S, "country": S}, "required": ["region", "country"], "dependencies": {"post-office-box": ["street"]}}), {"lat": 48.85, "lon": 2.35, "address": {"post-office-box": "1", "street": "s", "region": "r", "country": "FR"}}),
        (obj("answers", answers=arr({"allOf": [obj("question", question=S, confidence={"type": "number", "minimum": 0, "maximum": 1}), {"if": {"properties": {"kind": {"const": "choice"}}, "required": ["kind"]}, "then": {"properties": {"value": {"enum": ["a", "b", "c"]}}, "required": ["value"]}, "else": {"properties": {"value": S}}}]}, minItems=1)), {"answers": [{"question": "q", "confidence": 0.5, "kind": "choice", "value": "a"}]}),
        (obj("blocks", blocks=arr({"anyOf": [{"$ref": "#/$defs/paragraph"}, {"$ref": "#/$defs/list"}]})) | {"$defs": {"paragraph": obj("type text", closed=True, type_={"const": "p"}, text={**S, "minLength": 1}), "list": obj("type items", closed=True, type_={"const": "ul"}, items=arr({"anyOf": [{"$ref": "#/$defs/paragraph"}, {"$ref": "#/$defs/list"}]}, minItems=1))}}, {"blocks": [{"type": "ul", "items": [{"type": "p", "text": "x"}]}]}),
    ],
}  # fmt: skip
