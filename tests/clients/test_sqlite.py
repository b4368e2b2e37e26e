"""sqlite with every journal: committed means durable, whoever is killed."""
import os
import random
import select
import sqlite3
import time

import pytest

from lab import LONG
from lab.data import pattern
from lab.killing import Child, assert_alive

pytestmark = pytest.mark.P6

JOURNALS = ["delete", "truncate", "persist", "wal"]


def rows_of(turn):
    return [pattern(turn, number, 300) for number in range(50)]


def content(path):
    database = sqlite3.connect(path)
    try:
        assert database.execute("pragma integrity_check").fetchone()[0] == "ok"
        return [row[0] for row in database.execute("select value from t order by id")]
    finally:
        database.close()


def make(path, journal):
    database = sqlite3.connect(path)
    assert database.execute(f"pragma journal_mode={journal}").fetchone()[0] == journal
    with database:
        database.execute("create table t (id integer primary key, value blob)")
    database.close()


@pytest.mark.parametrize("journal", JOURNALS)
def test_transactions(mount, journal):
    path = mount.path / "data.db"
    make(path, journal)
    for turn in range(10):
        database = sqlite3.connect(path)
        with database:
            database.executemany("insert into t (value) values (?)", [(value,) for value in rows_of(turn)])
        database.close()
    database = sqlite3.connect(path)
    try:
        with database:
            database.execute("delete from t")
            raise RuntimeError("roll back")
    except RuntimeError:
        pass
    database.close()
    expected = [value for turn in range(10) for value in rows_of(turn)]
    assert content(path) == expected
    mount.kill()  # every commit was durable
    mount.start()
    assert content(path) == expected


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_two_connections_see_each_other(mount, journal):
    path = mount.path / "data.db"
    make(path, journal)
    one, two = sqlite3.connect(path, timeout=0), sqlite3.connect(path, timeout=0)
    one.execute("begin immediate")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        two.execute("begin immediate")
    one.execute("insert into t (value) values ('x')")
    assert two.execute("select count(*) from t").fetchone()[0] == 0
    one.commit()
    assert two.execute("select count(*) from t").fetchone()[0] == 1
    one.close()
    two.close()


@pytest.mark.P1
@pytest.mark.P2
@pytest.mark.parametrize("victim", ["client", "daemon"])
@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_killed_in_the_middle(mount, journal, victim):
    path, seed = mount.path / "data.db", random.randrange(1 << 32)
    print(f"seed {seed}")
    rolls, acknowledged = random.Random(seed), 0
    make(path, journal)
    for _ in range(20 if LONG else 3):
        told, tell = os.pipe()

        def commit_without_end(first=acknowledged):
            database = sqlite3.connect(path)
            database.execute("pragma synchronous=full")
            database.execute("pragma wal_autocheckpoint=20")
            for turn in range(first, first + 100000):
                with database:
                    database.executemany("insert into t (value) values (?)", [(value,) for value in rows_of(turn)])
                os.write(tell, b"x")

        child = Child(commit_without_end)
        assert select.select([told], [], [], 60)[0], "no transaction in a minute"
        time.sleep(rolls.uniform(0.2, 0.5))
        if victim == "daemon":
            mount.kill()
        landed = child.kill()
        os.close(tell)
        with os.fdopen(told, "rb") as pipe:
            acknowledged += len(pipe.read())
        assert landed
        if victim == "daemon":
            mount.start()
        assert_alive(mount)
        found = content(path)
        turns = len(found) // 50
        assert turns in (acknowledged, acknowledged + 1), f"{turns} transactions, {acknowledged} were acknowledged"
        assert found == [value for turn in range(turns) for value in rows_of(turn)]
        acknowledged = turns
    assert acknowledged > 2
