"""The OpenAPI document: bodies are read by hand (bodies.py), so each route says here what it takes and answers.

`operation` makes a route's documentation out of the models; `install` puts the models that requests name into the
document, and serves it at /openapi.json and, readable without a script, at /docs. Knows no route.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pydantic
from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse

from palmette.runtime.api.json_types import NAMED
from palmette.runtime.api.request_ids import LONGEST, RequestName

REFERENCE = "#/components/schemas/{model}"


class ErrorDetail(pydantic.BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(pydantic.BaseModel):
    """Every error, on every path. `type` follows the status, `code` is the error's own name, or what OpenAI's clients
    know it by, `param` the field at fault where there is one."""

    error: ErrorDetail


ERRORS = {
    400: "The request can't be served as it is; the message says why and what to do.",
    401: "The API key is missing or wrong.",
    403: "For administrators.",
    404: "Not found; for a model the message names those that are served.",
    408: "The body stopped coming.",
    413: "The body is too large; the message says how large it may be.",
    415: "The body is encoded (Content-Encoding), which is not read here.",
    410: "The branch is not known here any more.",
    429: "Too much is open or queued; `Retry-After` says when to try again.",
    503: "The engine is starting or being restarted; try again.",
}


READING = (400, 401, 408, 413, 415)  # of routes that read a body
GENERATING = (400, 401, 404, 408, 413, 415, 429, 503)  # of routes that ask the engine, of a model


def operation(
    answer: Any = None,
    *,
    takes: type[pydantic.BaseModel] | type[msgspec.Struct] | None = None,
    streams: Any = None,
    models: tuple[type[pydantic.BaseModel], ...] = (),
    errors: tuple[int, ...] = READING,
    unavailable: Any = None,
    media: str = "application/json",
    failure: type[pydantic.BaseModel] = ErrorAnswer,
    last_event: str = "`[DONE]`",
    tag: str,
) -> dict[str, Any]:
    """Keyword arguments of a route's decorator.

    `takes`: the body; `answer`: the model of a 200 (None: it has no JSON); `streams`: the model of one event's data,
    where the body may ask for a stream; `models`: others that the body names (json_types.listed); `unavailable`: the
    model of a 503 that is no error; `failure`: the model of one; `last_event`: what the last event's data is, where
    it is no JSON.
    """
    responses: dict[int | str, dict[str, Any]] = {
        status: {"model": failure, "description": ERRORS[status]}
        for status in sorted({*errors, *((413, 429) if 408 in errors else ())})  # who reads a body may answer those
    }
    if unavailable is not None:
        responses[503] = {"model": unavailable, "description": ERRORS[503]}
    good: dict[str, Any] = {"description": "The answer."}
    if answer is not None:
        good["model"] = answer
    elif streams is None:
        good["content"] = {media: {"schema": {"type": "string"}}}
    if streams is not None:
        events = _body_schema(streams)
        json = {"type": "string", "contentMediaType": "application/json", "contentSchema": _named(streams, events)}
        ending = [{"type": "string", "const": last_event.strip("`")}] if last_event else []
        told = f"JSON; of the last event {last_event}." if last_event else "JSON."
        data = {"description": told, "anyOf": [json, *ending]}
        shown = {"type": "object", "required": ["data"], "properties": {"data": data}}
        good.setdefault("content", {})["text/event-stream"] = {"schema": {"description": "An event.", **shown}}
    extra: dict[str, Any] = {}
    if takes is not None:
        schema = _named(takes, _body_schema(takes))
        for model in models:
            schema["$defs"] |= _named(model, _body_schema(model))["$defs"]
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {
        "responses": {200: good, **responses},
        "openapi_extra": extra,
        "response_model": None,
        "response_class": JSONResponse if answer is not None else Response,
        "tags": [tag],
    }


def _body_schema(kind: type[pydantic.BaseModel] | type[msgspec.Struct]) -> dict[str, Any]:
    if issubclass(kind, pydantic.BaseModel):
        return kind.model_json_schema(ref_template=REFERENCE)
    (schema,), definitions = msgspec.json.schema_components([kind], ref_template=REFERENCE.replace("model", "name"))
    return {**schema, "$defs": definitions}


def event_data(content: dict[str, Any]) -> dict[str, Any]:
    """The schema of an event's data, out of the content of an answer that streams."""
    data: dict[str, Any] = content["text/event-stream"]["schema"]["properties"]["data"]["anyOf"][0]["contentSchema"]
    return data


def _named(kind: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """A reference to `schema` by the name of its class, which is defined beside it: `document` moves it up."""
    name = getattr(kind, "__name__", None)
    if name is None:
        return schema
    definitions = schema.pop("$defs", {})
    return {"$ref": REFERENCE.format(model=name), "$defs": {**definitions, name: definitions.get(name, schema)}}


def document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of every route of `app`."""
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    _resolve(made)
    components: dict[str, Any] = made.setdefault("components", {}).setdefault("schemas", {})
    for name, schema in _definitions(made):
        components[name] = schema
    for unused in ("HTTPValidationError", "ValidationError"):  # of FastAPI's own bodies, which nobody uses
        components.pop(unused, None)
    for path in made.get("paths", {}).values():
        for each in path.values():
            each["responses"].pop("422", None)
    _name_requests(made)
    return made


def _name_requests(made: dict[str, Any]) -> None:
    """Every answer says what its request is called."""
    told = f"The name of the request: the client's, where it has sent one of up to {LONGEST} characters, else ours."
    made["components"]["headers"] = {"RequestId": {"description": told, "required": True, "schema": {"type": "string"}}}
    for path, methods in made.get("paths", {}).items():
        for name, _ in RequestName().headers(path):
            for each in methods.values():
                for response in each["responses"].values():
                    headers = response.setdefault("headers", {})
                    headers[name.decode()] = {"$ref": "#/components/headers/RequestId"}


def _resolve(value: Any) -> None:
    """Turns names of models into references."""
    if isinstance(value, dict):
        name = value.pop(NAMED, None)
        if name is not None:
            value["$ref"] = REFERENCE.format(model=name)
        for each in value.values():
            _resolve(each)
    elif isinstance(value, list):
        for each in value:
            _resolve(each)


def _definitions(value: Any) -> list[tuple[str, Any]]:
    """Takes every "$defs" out of `value`, wherever it is; returns what they held."""
    found: list[tuple[str, Any]] = []
    if isinstance(value, dict):
        definitions = value.pop("$defs", {})
        for name, schema in definitions.items():
            found += [*_definitions(schema), (name, schema)]
        for each in list(value.values()):
            found += _definitions(each)
    elif isinstance(value, list):
        for each in value:
            found += _definitions(each)
    return found


def install(app: FastAPI) -> None:
    """`app.openapi()` is the document from here on."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
