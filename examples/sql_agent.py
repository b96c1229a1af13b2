"""An agent that answers questions about a SQLite database: it asks for queries and reads what they give.

A model of any size can only ask for what is SQL, since the tool has a place for each of its words; a query that the
database refuses is told to the model, so that it can ask for another one. An able model may be given one for any SQL.

    palmette run examples/sql_agent.py
"""

from __future__ import annotations

import sqlite3
from threading import Lock
from typing import Any, Literal

import palmette as sgl

ROWS = {
    "ships": [("Aurora", 1998, 42), ("Bora", 2011, 8), ("Cirrus", 2005, 17)],
    "trips": [("Aurora", "Port Ann", 61), ("Aurora", "Bergen", 180), ("Bora", "Port Ann", 55)],
}
TABLES = {"ships": "name TEXT, built INTEGER, seats INTEGER", "trips": "ship TEXT, target TEXT, minutes INTEGER"}
QUESTIONS = ["How many seats does the ship Bora have?", "Which ships go to Port Ann?"]
MOST_ROWS = 20
Column = Literal["name", "built", "seats", "ship", "target", "minutes"]


def harbour() -> sqlite3.Connection:
    """A small database, which from here on can only be read."""
    database = sqlite3.connect(":memory:", check_same_thread=False)
    for table, columns in TABLES.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
        database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", ROWS[table])
    database.commit()
    database.execute("PRAGMA query_only = ON")
    return database


def described() -> str:
    """The tables as SQL, and a row of each, so that a model sees what they hold."""
    return "\n".join(f"CREATE TABLE {name} ({columns}); -- {ROWS[name][0]}" for name, columns in TABLES.items())


def sql_agent(database: sqlite3.Connection, **options: Any) -> sgl.Agent:
    one_at_a_time = Lock()  # tools run side by side in threads, and share the connection

    @sgl.tool(timeout=5.0)
    def select(column: Column, table: Literal["ships", "trips"], where: Column, equals: str) -> list[Any]:
        """Runs SELECT column FROM table WHERE where = equals, and gives the values that it finds."""
        with one_at_a_time:
            rows = database.execute(f"SELECT {column} FROM {table} WHERE {where} = ?", (equals,))
            return [value for (value,) in rows.fetchmany(MOST_ROWS)]

    return sgl.agent(
        [select],
        instructions=f"You answer questions about a database. Its tables, each with a row:\n{described()}",
        steps=3,
        least_calls=1,
        step_tokens=96,
        answer_tokens=96,
        **options,
    )


if __name__ == "__main__":
    agent = sql_agent(harbour())
    for question in QUESTIONS:
        result = agent.run(question, temperature=0.0)
        print(question)
        for step in result.steps:
            for call, each in zip(step.calls, step.results, strict=True):
                print(f"  {call} → {each.text}")
        print(f"→ {result.answer} ({result.ended}; {result.usage.cached_tokens} prompt tokens reused)\n")
